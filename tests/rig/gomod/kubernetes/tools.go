//go:build tools

// Package tools is not code of this project: it only pins, as a Go module, the parts of Kubernetes that the
// test rig builds where they cannot be downloaded.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
