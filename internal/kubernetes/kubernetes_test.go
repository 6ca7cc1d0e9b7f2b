package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	text := `
apiVersion: v1
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u, namespace: rl}}
- {name: two, context: {cluster: c, user: cloud}}
clusters:
- {name: c, cluster: {server: "https://example:6443", certificate-authority-data: Y2VydA==}}
users:
- {name: u, user: {token: secret}}
- {name: cloud, user: {exec: {command: aws}}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := Cluster{Config: file}.access()
	if err != nil || a.url != "https://example:6443" || a.namespace != "rl" || a.token != "secret" || string(a.ca) != "cert" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := (Cluster{Config: file, Context: "two"}).access(); err == nil || !strings.Contains(err.Error(), "kubectl proxy") {
		t.Errorf("a login by another program: %v", err)
	}
	if _, err := (Cluster{Config: file, Context: "three"}).access(); err == nil || !strings.Contains(err.Error(), `"three"`) {
		t.Errorf("no such context: %v", err)
	}
	if _, err := New(Cluster{Config: file}); err == nil {
		t.Error("a certificate that is none was taken")
	}
}
