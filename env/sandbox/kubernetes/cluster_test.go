//go:build unix

package kubernetes

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"syscall"
)

// TestMain keeps what this process was handed by who started it out of the pods that it plays.
func TestMain(m *testing.M) {
	entries, err := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		panic(err)
	}
	os.Exit(m.Run())
}

// cluster is a fake of the part of a Kubernetes API that the driver asks. Its pods are real: sets of
// namespaces made by bubblewrap, in which commands run as exec runs them.
type cluster struct {
	t       testing.TB
	claims  []string // versions served
	agents  []string
	v5      bool // of the protocol of commands
	mu      sync.Mutex
	objects map[string]map[string]any // by the path of their collection and their name
	pods    map[string]*pod
	// answer, where it is not nil, may answer a request in the cluster's place.
	answer func(w http.ResponseWriter, r *http.Request) bool
	// condition is what claims say of themselves in place of Ready.
	condition map[string]any
	bare      bool // claims have no pods
}

type pod struct {
	command *exec.Cmd
	pid     int
	ended   chan struct{}
}

func newCluster(t testing.TB) (*cluster, string) {
	c := &cluster{t: t, claims: []string{"v1beta1", "v1alpha1"}, agents: []string{"v1beta1"}, v5: true, objects: map[string]map[string]any{}, pods: map[string]*pod{}}
	front := httptest.NewServer(c)
	t.Cleanup(func() {
		front.Close()
		for name := range c.pods {
			c.end(name)
		}
	})
	return c, front.URL
}

func write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func problem(w http.ResponseWriter, code int, reason, message string) {
	write(w, code, map[string]any{"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})
}

func versions(names []string) any {
	var list []any
	for _, name := range names {
		list = append(list, map[string]any{"version": name})
	}
	return map[string]any{"kind": "APIGroup", "versions": list}
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.answer != nil && c.answer(w, r) {
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/apis/"+claims:
		write(w, 200, versions(c.claims))
	case r.URL.Path == "/apis/"+agents:
		write(w, 200, versions(c.agents))
	case parts[0] == "apis" && len(parts) == 6:
		c.collection(w, r, parts[5])
	case parts[0] == "apis" && len(parts) == 7:
		c.object(w, r, parts[5], parts[6])
	case parts[0] == "api" && len(parts) == 7 && parts[6] == "exec":
		c.exec(w, r, parts[5])
	default:
		problem(w, 404, "NotFound", r.URL.Path)
	}
}

func (c *cluster) collection(w http.ResponseWriter, r *http.Request, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Method == http.MethodGet {
		label, value, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "=")
		var items []any
		for key, o := range c.objects {
			labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
			if strings.HasPrefix(key, kind+"/") && (label == "" || labels[label] == value) {
				items = append(items, o)
			}
		}
		write(w, 200, map[string]any{"items": items})
		return
	}
	var o map[string]any
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		problem(w, 400, "BadRequest", err.Error())
		return
	}
	name := o["metadata"].(map[string]any)["name"].(string)
	if c.objects[kind+"/"+name] != nil {
		problem(w, 409, "AlreadyExists", name+" already exists")
		return
	}
	c.objects[kind+"/"+name] = o
	condition := c.condition
	if condition == nil {
		condition = map[string]any{"type": "Ready", "status": "True", "reason": "DependenciesReady"}
	}
	of := "pod-of-" + name
	if kind == "sandboxclaims" {
		c.objects["sandboxes/warm-"+name] = map[string]any{"metadata": map[string]any{"annotations": map[string]any{podName: of}}}
	} else {
		of = name
	}
	o["status"] = map[string]any{"conditions": []any{condition}, "sandbox": map[string]any{"name": "warm-" + name}}
	if !c.bare {
		c.pods[of] = start(c.t)
	}
	write(w, 201, o)
}

func (c *cluster) object(w http.ResponseWriter, r *http.Request, kind, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[kind+"/"+name]
	if kind == "sandboxwarmpools" && name == "pool" || kind == "sandboxtemplates" && name == "template" {
		o = map[string]any{}
	}
	if o == nil {
		problem(w, 404, "NotFound", kind+" "+name+" not found")
		return
	}
	if r.Method == http.MethodDelete {
		delete(c.objects, kind+"/"+name)
		delete(c.objects, "sandboxes/warm-"+name)
		c.end("pod-of-" + name)
		c.end(name)
	}
	write(w, 200, o)
}

func (c *cluster) end(name string) {
	p := c.pods[name]
	if p == nil {
		return
	}
	delete(c.pods, name)
	_ = p.command.Process.Kill()
	<-p.ended
}

// start makes a pod: namespaces in which a shell waits, as podTemplate has it.
func start(t testing.TB) *pod {
	said, says, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return nil
	}
	p := &pod{ended: make(chan struct{})}
	p.command = exec.Command("bwrap", "--unshare-pid", "--unshare-ipc", "--as-pid-1", "--die-with-parent", "--json-status-fd", "3",
		"--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin",
		"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
		"--tmpfs", "/work", "--chdir", "/work", "/bin/sh", "-c", "echo ready; trap exit TERM; while :; do sleep 3600 & wait; done")
	p.command.ExtraFiles = []*os.File{says}
	output, err := p.command.StdoutPipe()
	if err != nil {
		t.Error(err)
		return nil
	}
	if err := p.command.Start(); err != nil {
		t.Error(err)
		return nil
	}
	says.Close()
	if _, err := io.ReadFull(output, make([]byte, len("ready\n"))); err != nil {
		t.Errorf("the pod is not ready: %v", err)
	}
	go func() { _ = p.command.Wait(); close(p.ended) }()
	var first struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(said).Decode(&first); err != nil || first.PID == 0 {
		t.Errorf("bubblewrap started nothing: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, said); said.Close() }()
	p.pid = first.PID
	return p
}

// apart is that a pod has processes of its own: what ends all of them must not be run outside.
func (p *pod) apart() bool {
	ours, err := os.Readlink("/proc/self/ns/pid")
	theirs, err2 := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/ns/pid")
	return err == nil && err2 == nil && ours != theirs
}

// exec runs a command in a pod and speaks as the API does.
func (c *cluster) exec(w http.ResponseWriter, r *http.Request, name string) {
	c.mu.Lock()
	p := c.pods[name]
	c.mu.Unlock()
	if p == nil || !p.apart() {
		problem(w, 404, "NotFound", "pods "+name+" not found")
		return
	}
	protocol := "v4.channel.k8s.io"
	if c.v5 {
		protocol = "v5.channel.k8s.io"
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	command := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(p.pid), "-m", "-p", "-i", "--"}, r.URL.Query()["command"]...)...)
	command.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "KUBERNETES_SERVICE_HOST=10.0.0.1"}
	stdin, err := command.StdinPipe()
	if err != nil {
		c.t.Error(err)
		return
	}
	var mu sync.Mutex
	command.Stdout, command.Stderr = &channel{&mu, conn, r, stdoutChannel}, &channel{&mu, conn, r, stderrChannel}
	if err := command.Start(); err != nil {
		c.t.Error(err)
		return
	}
	go func() {
		for {
			_, message, err := conn.Read(r.Context())
			if err != nil || len(message) == 0 || message[0] != stdinChannel {
				stdin.Close()
				return
			}
			_, _ = stdin.Write(message[1:])
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err = <-ended:
	case <-p.ended:
		_ = command.Process.Kill()
		<-ended
		return // the node hangs up
	}
	s := map[string]any{"metadata": map[string]any{}, "status": "Success"}
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		code := failed.ExitCode()
		if code < 0 {
			code = 137
		}
		s = map[string]any{"status": "Failure", "reason": "NonZeroExitCode", "message": "command terminated with non-zero exit code",
			"details": map[string]any{"causes": []any{map[string]any{"reason": "ExitCode", "message": strconv.Itoa(code)}}}}
	}
	text, _ := json.Marshal(s)
	_, _ = (&channel{&mu, conn, r, errorChannel}).Write(text)
	_ = conn.Close(websocket.StatusNormalClosure, "")
}

// channel writes a stream of a command.
type channel struct {
	mu   *sync.Mutex
	conn *websocket.Conn
	r    *http.Request
	name byte
}

func (c *channel) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(text), c.conn.Write(c.r.Context(), websocket.MessageBinary, append([]byte{c.name}, text...))
}
