// Package kubernetestest starts a real control plane of Kubernetes for tests. It is etcd, the API server and its
// controllers, as one program that `make test-kubernetes` builds from testdata/controlplane. A control plane has
// neither scheduler nor kubelet here: a Node plays both, by the same API.
package kubernetestest
