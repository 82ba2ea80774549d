# shellcheck shell=bash disable=SC2034
# Settings shared by every script of the rig. Set any of them in the environment to override.
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
STATE=$(realpath -m "${STATE:-/tmp/lora-sidecar-cluster}")
KUBERNETES_BIN=$(realpath -m "${KUBERNETES_BIN:?the folder with the programs}")
CNI_BIN=${CNI_BIN:-/usr/lib/cni}

NODE_NAME=${NODE_NAME:-rig}
API_PORT=${API_PORT:-26443}
ETCD_PORT=${ETCD_PORT:-22379}
ETCD_PEER_PORT=${ETCD_PEER_PORT:-22380}
KUBELET_PORT=${KUBELET_PORT:-20250}
PROXY_HEALTH_PORT=${PROXY_HEALTH_PORT:-20256}
PROXY_METRICS_PORT=${PROXY_METRICS_PORT:-20249}
# The API server, kubelet and CoreDNS listen on the bridge's own address: pods reach
# them, and nothing outside this machine does.
POD_CIDR=${POD_CIDR:-10.200.0.0/24}
NODE_IP=${NODE_IP:-10.200.0.1}
SERVICE_CIDR=${SERVICE_CIDR:-10.201.0.0/24}
BRIDGE=${BRIDGE:-rigbr0}

KUBECONFIG_FILE=$STATE/kubeconfig
CONTAINERD_SOCKET=$STATE/containerd/containerd.sock
PAUSE_IMAGE=localhost/pause:1

export PATH=$KUBERNETES_BIN:/usr/local/sbin:/usr/sbin:/sbin:$PATH

kubectl() { command kubectl --kubeconfig "$KUBECONFIG_FILE" "$@"; }
ctr() { command ctr --address "$CONTAINERD_SOCKET" --namespace k8s.io "$@"; }
die() { echo "$*" >&2; exit 1; }

# wait_for SECONDS COMMAND...: retry until the command succeeds.
wait_for() {
  local deadline=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || return 1
    sleep 0.3
  done
}
