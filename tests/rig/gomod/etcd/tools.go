//go:build tools

// Package tools is not code of this project: it only pins, as a Go module, the etcd that the test rig builds
// where it cannot be downloaded.
package tools

import _ "go.etcd.io/etcd/server/v3"
