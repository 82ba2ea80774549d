"""lora-sidecar: what LoRAAdapters ask for is loaded in every SGLang pod, and status says the truth.

api         what is said: the resources, their names, states and reasons (pure values)
kube        how we ask the API server: client, informer, writes (knows no LoRA)
runtime     how a process of ours lives: logs, signals, probes, metrics
agent       one per SGLang pod: gather, plan, act, report
aggregator  one per cluster: folds the reports of all pods into each LoRAAdapter's status
"""

__version__ = "0.1.0"
