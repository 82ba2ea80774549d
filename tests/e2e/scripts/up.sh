#!/usr/bin/env bash
# Starts a one-node Kubernetes cluster on this machine. Undo it with down.sh.
set -euo pipefail
. "$(dirname "$0")/env.sh"

[[ $EUID == 0 ]] || die "run as root"
[[ ! -e $STATE ]] || die "$STATE exists: the cluster is up, or needs ./down.sh first"
for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
  [[ -x $KUBERNETES_BIN/$name ]] || die "$KUBERNETES_BIN/$name is missing: see tests/e2e"
done
for name in containerd ctr runc ip openssl; do
  command -v "$name" >/dev/null || die "$name is missing: apt-get install containerd runc containernetworking-plugins iptables iproute2 openssl"
done
for name in bridge host-local loopback portmap; do
  [[ -x $CNI_BIN/$name ]] || die "CNI plugin $CNI_BIN/$name is missing: apt-get install containerd runc containernetworking-plugins iptables iproute2 openssl"
done

mkdir -p "$STATE"/{pids,logs,pki,kubeconfigs,sysctl,containerd,cni/net.d,kubelet,pod-logs}
chmod 700 "$STATE"/pki "$STATE"/kubeconfigs
cd "$STATE"
service_ip=${SERVICE_CIDR%.*}.1

# start NAME COMMAND...: run in the background, with a pid file and a log.
start() {
  local name=$1; shift
  setsid "$@" >"logs/$name.log" 2>&1 </dev/null &
  echo $! >"pids/$name"
}

# ready NAME SECONDS COMMAND...: wait until the command succeeds; give up early if NAME has died.
ready() {
  local name=$1 deadline=$((SECONDS + $2)); shift 2
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= deadline)) || ! kill -0 "$(<"pids/$name")" 2>/dev/null; then
      tail -n 20 "logs/$name.log" >&2
      die "$name is not ready; its log is $STATE/logs/$name.log"
    fi
    sleep 0.3
  done
}

# --- certificates and kubeconfigs -------------------------------------------------

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1" 2>/dev/null; }

# certificate NAME SUBJECT [ALTERNATIVE_NAMES]
certificate() {
  new_key "pki/$1.key"
  openssl req -new -key "pki/$1.key" -subj "$2" |
    openssl x509 -req -days 30 -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial -out "pki/$1.crt" \
      -extfile <(
        echo "keyUsage=critical,digitalSignature"
        echo "extendedKeyUsage=serverAuth,clientAuth"
        echo "authorityKeyIdentifier=keyid"
        [[ -z ${3:-} ]] || echo "subjectAltName=$3"
      ) 2>/dev/null
}

kubeconfig() { # NAME OUTPUT
  local set=(command kubectl config --kubeconfig "$2")
  {
    "${set[@]}" set-cluster rig --server "https://$NODE_IP:$API_PORT" --certificate-authority pki/ca.crt --embed-certs
    "${set[@]}" set-credentials "$1" --client-certificate "pki/$1.crt" --client-key "pki/$1.key" --embed-certs
    "${set[@]}" set-context rig --cluster rig --user "$1"
    "${set[@]}" use-context rig
  } >/dev/null
}

new_key pki/ca.key
# Python 3.13 and later refuse a CA without keyUsage.
openssl req -x509 -new -key pki/ca.key -subj "/CN=rig" -days 30 -out pki/ca.crt \
  -addext "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"
openssl genrsa -out pki/service-account.key 2048 2>/dev/null
certificate apiserver "/CN=kube-apiserver" \
  "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:$service_ip,IP:$NODE_IP"
certificate apiserver-kubelet-client "/O=system:masters/CN=kube-apiserver-kubelet-client"
certificate kubelet-server "/CN=$NODE_NAME" "DNS:$NODE_NAME,IP:$NODE_IP"
certificate admin "/O=system:masters/CN=admin"
certificate kubelet "/O=system:nodes/CN=system:node:$NODE_NAME"
certificate controller-manager "/CN=system:kube-controller-manager"
certificate scheduler "/CN=system:kube-scheduler"
certificate proxy "/CN=system:kube-proxy"
for name in kubelet controller-manager scheduler proxy; do
  kubeconfig $name kubeconfigs/$name
done
kubeconfig admin kubeconfig
chmod 600 kubeconfig

# --- network ----------------------------------------------------------------------

# Old values are kept for down.sh.
set_sysctl() {
  cat "/proc/sys/$1" >"sysctl/${1//\//.}"
  echo "$2" >"/proc/sys/$1"
}
set_sysctl net/ipv4/ip_forward 1
if [[ ! -d /proc/sys/net/bridge ]]; then modprobe br_netfilter; fi
set_sysctl net/bridge/bridge-nf-call-iptables 1
# Otherwise the kernel holds back some of the errors that tell a pod at once that a connection cannot succeed.
set_sysctl net/ipv4/conf/all/send_redirects 0
set_sysctl net/ipv4/icmp_ratelimit 0

ip link add "$BRIDGE" type bridge
ip address add "$NODE_IP/${POD_CIDR#*/}" dev "$BRIDGE"
echo 0 >"/proc/sys/net/ipv4/conf/$BRIDGE/send_redirects"
ip link set "$BRIDGE" up
# Keeps traffic for services without endpoints off the default route.
ip route add "$SERVICE_CIDR" dev "$BRIDGE"
# Pods reach pods, services and this machine, and nothing beyond.
ip rule add priority 20001 iif "$BRIDGE" to "$POD_CIDR" lookup main
ip rule add priority 20002 iif "$BRIDGE" to "$SERVICE_CIDR" lookup main
ip rule add priority 20003 iif "$BRIDGE" unreachable

cat >cni/net.d/10-rig.conflist <<END
{
  "cniVersion": "0.4.0",
  "name": "rig",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "$BRIDGE",
      "isGateway": true,
      "hairpinMode": true,
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "dataDir": "$STATE/cni/ipam",
        "ranges": [[{"subnet": "$POD_CIDR", "gateway": "$NODE_IP"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
END

# --- control plane ----------------------------------------------------------------

start etcd etcd --data-dir etcd --unsafe-no-fsync \
  --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
  --listen-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" \
  --initial-cluster "default=http://127.0.0.1:$ETCD_PEER_PORT"

start kube-apiserver kube-apiserver \
  --etcd-servers "http://127.0.0.1:$ETCD_PORT" \
  --bind-address "$NODE_IP" --advertise-address "$NODE_IP" --secure-port "$API_PORT" \
  --tls-cert-file pki/apiserver.crt --tls-private-key-file pki/apiserver.key --client-ca-file pki/ca.crt \
  --service-cluster-ip-range "$SERVICE_CIDR" \
  --service-account-issuer https://kubernetes.default.svc \
  --service-account-key-file pki/service-account.key --service-account-signing-key-file pki/service-account.key \
  --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
  --kubelet-client-certificate pki/apiserver-kubelet-client.crt \
  --kubelet-client-key pki/apiserver-kubelet-client.key \
  --kubelet-certificate-authority pki/ca.crt --kubelet-preferred-address-types InternalIP

# --- node -------------------------------------------------------------------------

overlay_works() {
  mkdir -p overlay-test/{lower,upper,work,merged}
  mount -t overlay overlay overlay-test/merged \
    -o lowerdir=overlay-test/lower,upperdir=overlay-test/upper,workdir=overlay-test/work || return 1
  umount overlay-test/merged
}
if [[ -z ${SNAPSHOTTER:-} ]]; then
  SNAPSHOTTER=native
  if overlay_works 2>/dev/null; then SNAPSHOTTER=overlayfs; fi
  rm -rf overlay-test
fi
echo "$SNAPSHOTTER" >containerd/snapshotter

cat >containerd/config.toml <<END
version = 2
root = "$STATE/containerd/root"
state = "$STATE/containerd/state"

[grpc]
  address = "$CONTAINERD_SOCKET"

[plugins."io.containerd.internal.v1.opt"]
  path = "$STATE/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  netns_mounts_under_state_dir = true
  # Where the caller may not lower OOM scores (no CAP_SYS_RESOURCE), containers could not start.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$CNI_BIN"
    conf_dir = "$STATE/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$SNAPSHOTTER"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "$STATE/containerd/runc"
        SystemdCgroup = false
END
start containerd containerd --config containerd/config.toml

# clusterDNS is the node itself: CoreDNS listens there when it has been built.
echo "nameserver $NODE_IP" >resolv.conf
cat >kubelet/config.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
port: $KUBELET_PORT
healthzPort: 0
authentication:
  x509: {clientCAFile: $STATE/pki/ca.crt}
tlsCertFile: $STATE/pki/kubelet-server.crt
tlsPrivateKeyFile: $STATE/pki/kubelet-server.key
containerRuntimeEndpoint: unix://$CONTAINERD_SOCKET
podLogsDir: $STATE/pod-logs
volumePluginDir: $STATE/kubelet/volume-plugins
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
resolvConf: $STATE/resolv.conf
clusterDNS: [$NODE_IP]
clusterDomain: cluster.local
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
# Volumes from ConfigMaps and Secrets refresh within seconds.
syncFrequency: 10s
END
if [[ -z ${PROXY_MODE:-} ]]; then
  PROXY_MODE=nftables
  if command -v iptables >/dev/null; then PROXY_MODE=iptables; fi
fi
cat >proxy.yaml <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $STATE/kubeconfigs/proxy}
mode: $PROXY_MODE
clusterCIDR: $POD_CIDR
hostnameOverride: $NODE_NAME
healthzBindAddress: 127.0.0.1:$PROXY_HEALTH_PORT
metricsBindAddress: 127.0.0.1:$PROXY_METRICS_PORT
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {localhostNodePorts: false}
nodePortAddresses: [primary]
END

ready containerd 20 ctr version
ready kube-apiserver 60 kubectl get --raw /readyz

start kube-controller-manager kube-controller-manager --kubeconfig kubeconfigs/controller-manager \
  --use-service-account-credentials --service-account-private-key-file pki/service-account.key \
  --root-ca-file pki/ca.crt --cluster-signing-cert-file pki/ca.crt --cluster-signing-key-file pki/ca.key \
  --leader-elect=false --secure-port 0
start kube-scheduler kube-scheduler --kubeconfig kubeconfigs/scheduler --leader-elect=false --secure-port 0
start kubelet kubelet --config kubelet/config.yaml --kubeconfig kubeconfigs/kubelet \
  --root-dir "$STATE/kubelet" --hostname-override "$NODE_NAME" --node-ip "$NODE_IP"
start kube-proxy kube-proxy --config proxy.yaml
if [[ -x $KUBERNETES_BIN/coredns ]]; then
  cat >Corefile <<END
.:53 {
  bind $NODE_IP
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $KUBECONFIG_FILE
  }
}
END
  start coredns coredns -conf Corefile
  ready coredns 20 timeout 1 bash -c "</dev/tcp/$NODE_IP/53"
fi

ready kubelet 60 kubectl wait --for condition=Ready "node/$NODE_NAME" --timeout 1s
ready kube-proxy 30 timeout 1 bash -c "</dev/tcp/$service_ip/443"
ready kube-controller-manager 30 kubectl -n default get serviceaccount default

echo "node $NODE_NAME is Ready ($SNAPSHOTTER snapshots, kube-proxy with $PROXY_MODE)" >&2
echo "$KUBECONFIG_FILE"
