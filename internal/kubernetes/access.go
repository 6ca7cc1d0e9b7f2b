package kubernetes

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// access finds what is needed to speak to the cluster's API.
func (c Cluster) access() (access, error) {
	if c.URL != "" {
		return access{url: c.URL}, nil
	}
	if file := cmp.Or(c.Config, os.Getenv("KUBECONFIG")); file != "" {
		return c.file(file)
	}
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host != "" && port != "" {
		return ofThisPod(net.JoinHostPort(host, port))
	}
	home, err := os.UserHomeDir()
	if err == nil {
		file := filepath.Join(home, ".kube", "config")
		if _, err := os.Stat(file); err == nil {
			return c.file(file)
		}
	}
	return access{}, errors.New("no cluster is known: name a kubeconfig file, or the address that kubectl proxy prints")
}

func ofThisPod(address string) (access, error) {
	a := access{url: "https://" + address, tokenFile: account + "/token"}
	name, err := os.ReadFile(account + "/namespace")
	if err != nil {
		return a, fmt.Errorf("this pod has no service account: %w", err)
	}
	a.namespace = strings.TrimSpace(string(name))
	a.ca, err = os.ReadFile(account + "/ca.crt")
	return a, err
}

// kubeconfig is the part of a kubeconfig file that is read.
type kubeconfig struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string
		Context struct{ Cluster, User, Namespace string }
	}
	Clusters []struct {
		Name    string
		Cluster struct {
			Server   string
			CA       string `yaml:"certificate-authority"`
			CAData   string `yaml:"certificate-authority-data"`
			Insecure bool   `yaml:"insecure-skip-tls-verify"`
		}
	}
	Users []struct {
		Name string
		User struct {
			Token     string
			TokenFile string `yaml:"tokenFile"`
			Cert      string `yaml:"client-certificate"`
			CertData  string `yaml:"client-certificate-data"`
			Key       string `yaml:"client-key"`
			KeyData   string `yaml:"client-key-data"`
			Exec      any
			Provider  any `yaml:"auth-provider"`
		}
	}
}

// file reads a kubeconfig file.
func (c Cluster) file(file string) (a access, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return a, err
	}
	var k kubeconfig
	if err := yaml.Unmarshal(text, &k); err != nil {
		return a, fmt.Errorf("%s is no kubeconfig: %w", file, err)
	}
	name := cmp.Or(c.Context, k.Current)
	var cluster, user string
	found := false
	for _, one := range k.Contexts {
		if one.Name == name {
			found, cluster, user, a.namespace = true, one.Context.Cluster, one.Context.User, one.Context.Namespace
		}
	}
	if !found {
		return a, fmt.Errorf("%s has no context %q", file, name)
	}
	for _, one := range k.Clusters {
		if one.Name == cluster {
			a.url, a.insecure = one.Cluster.Server, one.Cluster.Insecure
			a.ca, err = pem(file, one.Cluster.CA, one.Cluster.CAData)
		}
	}
	for _, one := range k.Users {
		if one.Name != user || err != nil {
			continue
		}
		u := one.User
		if u.Exec != nil || u.Provider != nil {
			return a, fmt.Errorf("%s: the user %q logs in by another program, which is not run here: start kubectl proxy and give its address", file, user)
		}
		a.token, a.tokenFile = u.Token, beside(file, u.TokenFile)
		if a.cert, err = pem(file, u.Cert, u.CertData); err == nil {
			a.key, err = pem(file, u.Key, u.KeyData)
		}
	}
	return a, err
}

// beside is a path that a file names, from that file's directory.
func beside(file, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// pem is what a kubeconfig names by a path or holds in base64; nil for neither.
func pem(file, path, data string) ([]byte, error) {
	if data != "" {
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("%s: no base64: %w", file, err)
		}
		return text, nil
	}
	if path == "" {
		return nil, nil
	}
	return os.ReadFile(beside(file, path))
}
