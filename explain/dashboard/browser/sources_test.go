package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write puts a file into a directory of the test's own, and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A control plane that has tokens asks for one: with a viewer's everything is seen but the rollouts.
func TestControlPlaneAsksForItsToken(t *testing.T) {
	tokens := write(t, "tokens", "admin an-admin-secret-0123456789\nviewer a-viewer-secret-0123456789\n")
	s := serve(t, "serve", "--listen", "127.0.0.1:0", "--token-file", tokens, "--dir", t.TempDir())
	p := openTab(t, wide, s.url)
	p.allowed = func(problem string) bool { // 503: it listens before its run is open
		return strings.Contains(problem, "401") || strings.Contains(problem, "403") || strings.Contains(problem, "503")
	}
	enter := func(token string) {
		t.Helper()
		p.wait("document.querySelector('input[type=password]')")
		eval[bool](p, fmt.Sprintf("(f => { f.focus(); f.value = %q; f.dispatchEvent(new Event('input', {bubbles: true})); f.form.requestSubmit(); return true; })(document.querySelector('input[type=password]'))", token))
	}
	p.waitText("This server asks for a token")
	enter("not-a-secret-of-anybody-here")
	p.waitText("The token is not known.")
	enter("a-viewer-secret-0123456789")
	p.waitText("Queue health")
	p.picture("serve-viewer")
	p.keys("2")
	p.ready("timeline")
	p.keys("4")
	p.waitText("Rollouts are not for this token.")
	p.waitText("a token of role trainer or admin: this one is of role viewer")
	p.picture("serve-viewer-rollouts")
}

// A document is simulated and shown like a run.
func TestDocumentIsShown(t *testing.T) {
	document := write(t, "small.yaml", "rollout: {concurrency: 32, group_size: 4}\nmodelled: {decode_tokens_per_s: 50, length: {kind: fixed, mean_tokens: 500}, train: {utilization: 0.9}}\n"+
		"train: {batch: 32}\nqueue: {policy: drop, factor: 1}\nsteps: {warmup: 10, measured: 60}\n")
	s := serve(t, "view", document, "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url)
	p.ready("overview")
	p.wait("document.querySelector('header [role=status]')?.innerText.includes('ended')")
	p.wait("document.querySelector('.facts').innerText.includes('v70')")
	p.keys("2")
	p.ready("timeline")
	p.wait("document.querySelector('#timeline-says').innerText.includes('train steps 1 to 70')")
	p.picture("simulation-timeline")
}
