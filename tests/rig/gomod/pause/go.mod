module lora-sidecar.llmkube.dev/tests/rig/pause

go 1.24
