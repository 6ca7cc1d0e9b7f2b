//go:build linux

package kubernetestest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/headway-rl/headway/internal/kubernetes"
)

// Object is a resource as JSON has it.
type Object = map[string]any

func decode(text []byte, into any) error { return json.Unmarshal(text, into) }

// Certificate is the user of a kubeconfig who asks by a client's certificate.
func (c *ControlPlane) Certificate(t testing.TB, user string, groups ...string) Object {
	t.Helper()
	certificate, key := c.authority.issue(t, user, groups...)
	return Object{"client-certificate-data": base64.StdEncoding.EncodeToString(certificate), "client-key-data": base64.StdEncoding.EncodeToString(key)}
}

// Kubeconfig writes a kubeconfig file of one user and returns its path.
func (c *ControlPlane) Kubeconfig(t testing.TB, name string, user Object, namespace string) string {
	t.Helper()
	text, err := yaml.Marshal(Object{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"contexts": []Object{{"name": "test", "context": Object{"cluster": "test", "user": name, "namespace": namespace}}},
		"clusters": []Object{{"name": "test", "cluster": Object{"server": c.URL, "certificate-authority-data": base64.StdEncoding.EncodeToString(c.CA)}}},
		"users":    []Object{{"name": name, "user": user}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.File(t, name+".kubeconfig", text)
}

// Token is a new one of a service account, by the API that a kubelet asks for the tokens of pods.
func (c *ControlPlane) Token(t testing.TB, namespace, account string) string {
	t.Helper()
	var answer struct{ Status struct{ Token string } }
	c.Do(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token",
		Object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": Object{"expirationSeconds": 3600}}, &answer)
	return answer.Status.Token
}

// Do asks for something as the admin, who is not refused.
func (c *ControlPlane) Do(t testing.TB, method, path string, body, into any) {
	t.Helper()
	r := kubernetes.Request{Method: method, Path: path, Body: body}
	if method == http.MethodPatch {
		r.Type = kubernetes.MergePatch
	}
	if err := c.Admin.Do(t.Context(), r, into); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// Namespace makes a namespace and waits for the account that its pods have.
func (c *ControlPlane) Namespace(t testing.TB, name string) {
	t.Helper()
	c.Do(t, http.MethodPost, "/api/v1/namespaces", Object{"metadata": Object{"name": name}}, nil)
	Until(t, "the namespace has an account", func() error {
		return c.Admin.Do(t.Context(), kubernetes.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/" + name + "/serviceaccounts/default"}, nil)
	})
}

// Apply makes the objects of a file of manifests in a namespace, which may have no unknown field. Before, where it is not nil, may
// change one.
func (c *ControlPlane) Apply(t testing.TB, namespace, file string, before func(Object)) {
	t.Helper()
	for _, o := range objects(t, file) {
		if before != nil {
			before(o)
		}
		c.strictly(t, kubernetes.Request{Method: http.MethodPost, Path: collection(namespace, o), Body: o})
	}
}

// Patch changes the objects of a namespace as a file says, as kubectl patch --patch-file does.
func (c *ControlPlane) Patch(t testing.TB, namespace, file string) {
	t.Helper()
	for _, o := range objects(t, file) {
		path := collection(namespace, o) + "/" + o["metadata"].(Object)["name"].(string)
		c.strictly(t, kubernetes.Request{Method: http.MethodPatch, Path: path, Body: o, Type: "application/strategic-merge-patch+json"})
	}
}

// strictly has a request refused for a field that the API does not know.
func (c *ControlPlane) strictly(t testing.TB, r kubernetes.Request) {
	t.Helper()
	r.Query = map[string]string{"fieldValidation": "Strict"}
	if err := c.Admin.Do(t.Context(), r, nil); err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.Path, err)
	}
}

// objects are those of a file.
func objects(t testing.TB, file string) (all []Object) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var o Object
		err := documents.Decode(&o)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, o)
	}
}

// collection is the path that objects of a kind are made at.
func collection(namespace string, o Object) string {
	path := "/apis/"
	version := fmt.Sprint(o["apiVersion"])
	if !strings.Contains(version, "/") {
		path = "/api/"
	}
	path += version
	kind := strings.ToLower(fmt.Sprint(o["kind"]))
	if kind != "customresourcedefinition" && kind != "namespace" {
		path += "/namespaces/" + namespace
	}
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return path + "/" + stem + "ies"
	}
	return path + "/" + kind + "s"
}

// Define makes the resources of a file of CustomResourceDefinitions and waits until they are served. Where several
// versions are converted by a program that is not there, they are taken as they are.
func (c *ControlPlane) Define(t testing.TB, file string) {
	t.Helper()
	var path string
	c.Apply(t, "", file, func(o Object) {
		delete(o["spec"].(Object), "conversion")
		path = collection("", o) + "/" + o["metadata"].(Object)["name"].(string)
	})
	Until(t, file+" is served", func() error {
		var definition struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		err := c.Admin.Do(t.Context(), kubernetes.Request{Method: http.MethodGet, Path: path}, &definition)
		for _, condition := range definition.Status.Conditions {
			if condition.Type == "Established" && condition.Status == "True" {
				return err
			}
		}
		return fmt.Errorf("%+v, %v", definition.Status, err)
	})
}
