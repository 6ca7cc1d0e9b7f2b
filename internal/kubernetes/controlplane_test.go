//go:build linux

package kubernetes_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/kubernetes"
	"github.com/headway-rl/headway/internal/kubernetes/kubernetestest"
)

// user asks a control plane who asks, as kubectl auth whoami does.
func user(t *testing.T, cluster kubernetes.Cluster) (string, *kubernetes.API, error) {
	t.Helper()
	api, err := kubernetes.New(cluster)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	body := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
	err = api.Do(t.Context(), kubernetes.Request{Method: http.MethodPost, Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", Body: body}, &answer)
	return answer.Status.UserInfo.Username, api, err
}

// Whoever asks a real API server is who the kubeconfig, or the pod's account, says.
func TestAccessToAControlPlane(t *testing.T) {
	c := kubernetestest.Start(t)
	c.Namespace(t, "rl")
	account := "system:serviceaccount:rl:default"
	token := c.Token(t, "rl", "default")
	pair := c.Certificate(t, "ada", "people")
	file := func(name, key string) string {
		text, err := base64.StdEncoding.DecodeString(pair[key].(string))
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Base(c.File(t, name, text))
	}
	relative := kubernetestest.Object{"client-certificate": file("ada.crt", "client-certificate-data"), "client-key": file("ada.key", "client-key-data")}
	c.File(t, "of.token", []byte(token+"\n"))
	for name, test := range map[string]struct {
		user kubernetestest.Object
		want string
	}{
		"certificates":          {pair, "ada"},
		"files beside":          {relative, "ada"},
		"a token":               {kubernetestest.Object{"token": token}, account},
		"a token's file beside": {kubernetestest.Object{"tokenFile": "of.token"}, account},
		"nobody":                {kubernetestest.Object{}, ""},
	} {
		config := c.Kubeconfig(t, strings.ReplaceAll(name, " ", "-"), test.user, "rl")
		got, api, err := user(t, kubernetes.Cluster{Config: config})
		if got != test.want || test.want != "" && err != nil || api.Namespace() != "rl" {
			t.Errorf("%s: %q in %s, expected %q: %v", name, got, api.Namespace(), test.want, err)
		}
		if test.want == "" && !kubernetestest.Is(err, kubernetes.Denied) {
			t.Errorf("%s: %v", name, err)
		}
		t.Setenv("KUBECONFIG", config)
		if got, _, _ := user(t, kubernetes.Cluster{}); got != test.want {
			t.Errorf("%s, by KUBECONFIG: %q", name, got)
		}
	}
	t.Run("refused", func(t *testing.T) { refused(t, c) })
	t.Run("in a pod", func(t *testing.T) { inAPod(t, c, token, account) })
}

// A token that is none, and a server that the authority has not signed for, are told apart.
func refused(t *testing.T, c *kubernetestest.ControlPlane) {
	config := c.Kubeconfig(t, "garbled", kubernetestest.Object{"token": "x.y.z"}, "")
	if _, _, err := user(t, kubernetes.Cluster{Config: config}); !kubernetestest.Is(err, kubernetes.Denied) || strings.Contains(err.Error(), "x.y.z") {
		t.Errorf("a token that is none: %v", err)
	}
	if _, _, err := user(t, kubernetes.Cluster{URL: c.URL}); !kubernetestest.Is(err, kubernetes.Down) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that nobody has vouched for: %v", err)
	}
	if _, _, err := user(t, kubernetes.Cluster{URL: strings.Replace(c.URL, "https", "http", 1)}); !kubernetestest.Is(err, kubernetes.Invalid) {
		t.Errorf("plain HTTP: %v", err)
	}
}

// A pod's files are found where Kubernetes puts them, and its token is read anew when it was changed.
func inAPod(t *testing.T, c *kubernetestest.ControlPlane, token, account string) {
	c.File(t, "ca.crt", c.CA)
	c.File(t, "namespace", []byte("rl"))
	dir := filepath.Dir(c.File(t, "token", []byte("of yesterday")))
	t.Cleanup(kubernetes.SetAccount(dir))
	address, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", address.Hostname())
	t.Setenv("KUBERNETES_SERVICE_PORT", address.Port())
	_, api, err := user(t, kubernetes.Cluster{})
	if !kubernetestest.Is(err, kubernetes.Denied) {
		t.Errorf("an old token: %v", err)
	}
	c.File(t, "token", []byte(token))
	err = api.Do(t.Context(), kubernetes.Request{Method: http.MethodGet, Path: "/version"}, nil)
	if got, _, again := user(t, kubernetes.Cluster{}); err != nil || again != nil || got != account || api.Namespace() != "rl" {
		t.Errorf("%q in %s, expected %q: %v, %v", got, api.Namespace(), account, err, again)
	}
}
