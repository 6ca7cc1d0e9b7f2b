package kubernetes

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzRefusal: an answer that refuses may say anything, and is an error that says something.
func FuzzRefusal(f *testing.F) {
	f.Add(403, []byte(`{"kind":"Status","message":"exceeded quota","reason":"Forbidden","details":{"causes":[{"reason":"a","message":"b"}]}}`))
	f.Add(500, []byte(`null`))
	f.Fuzz(func(t *testing.T, code int, text []byte) {
		if err := Refusal(code, text); err.Err == nil || err.Error() == "" || len(err.Error()) > 100+4*len(text) {
			t.Errorf("%d %q: %v", code, text, err)
		}
	})
}

// FuzzConfig: a kubeconfig file may be anything, and no other file is read than one that it names.
func FuzzConfig(f *testing.F) {
	f.Add([]byte("current-context: c\ncontexts:\n- name: c\n  context: {cluster: k, user: u, namespace: n}\nclusters:\n- name: k\n  cluster: {server: https://h, certificate-authority-data: YQ==}\nusers:\n- name: u\n  user: {token: t}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("a: &a {<<: *a}\ncontexts: *a"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := Cluster{Config: path}.file(path)
		if err == nil && len(a.token) > len(text) {
			t.Errorf("%+v", a)
		}
	})
}
