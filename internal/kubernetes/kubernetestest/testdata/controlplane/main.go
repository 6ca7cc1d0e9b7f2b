// Command controlplane is a Kubernetes control plane in one process, for tests: etcd, the API server and the
// controllers that are named. It has no scheduler and no kubelet: a test plays both.
package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

const usage = "controlplane etcd DIR CLIENT-URL PEER-URL | apiserver ARGS | controllers ARGS"

func main() {
	if len(os.Args) < 2 || os.Args[1] == "etcd" && len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	part, args := os.Args[1], os.Args[2:]
	err := errors.New(usage)
	switch part {
	case "etcd":
		err = etcd(args)
	case "apiserver":
		c := apiserver.NewAPIServerCommand()
		c.SetArgs(args)
		err = c.Execute()
	case "controllers":
		c := controllers.NewControllerManagerCommand()
		c.SetArgs(args)
		err = c.Execute()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// etcd runs until it fails; args are its directory and the addresses for clients and for its like.
func etcd(args []string) error {
	cfg := embed.NewConfig()
	client, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	peer, err := url.Parse(args[2])
	if err != nil {
		return err
	}
	cfg.Dir, cfg.UnsafeNoFsync, cfg.LogLevel = args[0], true, "error"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.InitialCluster = cfg.Name + "=" + args[2]
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		return errors.New("etcd is not ready after a minute")
	}
	return <-e.Err()
}
