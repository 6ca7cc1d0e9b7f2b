//go:build linux

package kubernetestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/internal/kubernetes"
)

// Program is the environment variable that names the control plane's program.
const Program = "HEADWAY_KUBERNETES"

// ControlPlane is one that runs until its test ends.
type ControlPlane struct {
	// URL of its API, and CA in PEM, which is also who signs the certificates of its users.
	URL string
	CA  []byte
	// Admin may do everything.
	Admin *kubernetes.API

	dir       string
	authority *authority
}

// within is how long a part may take to answer; the machine may be busy.
const within = 3 * time.Minute

// controllers are those that tests need: pods of StatefulSets and Deployments, an account in every namespace, quotas, and
// what goes with its owner.
const controllers = "statefulset-controller,deployment-controller,replicaset-controller,serviceaccount-controller,resourcequota-controller,garbage-collector-controller"

// Start starts a control plane of its own for a test, and skips the test where no program is named.
func Start(t testing.TB) *ControlPlane {
	t.Helper()
	program := os.Getenv(Program)
	if program == "" {
		t.Skip("needs a control plane of Kubernetes: make test-kubernetes")
	}
	c := &ControlPlane{dir: t.TempDir(), authority: newAuthority(t)}
	c.CA = c.authority.PEM
	ca := c.File(t, "ca.crt", c.CA)
	serving, key := c.authority.issue(t, "kube-apiserver")
	cert, certKey := c.File(t, "serving.crt", serving), c.File(t, "serving.key", key)
	accounts := c.File(t, "accounts.key", keyPEM(t, newKey(t)))
	ports := freePorts(t, 3)
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	c.URL = fmt.Sprintf("https://127.0.0.1:%d", ports[2])

	c.run(t, program, "etcd", filepath.Join(c.dir, "etcd"), etcd, fmt.Sprintf("http://127.0.0.1:%d", ports[1]))
	ended := c.run(t, program, "apiserver",
		"--etcd-servers="+etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]), "--endpoint-reconciler-type=none",
		"--tls-cert-file="+cert, "--tls-private-key-file="+certKey, "--client-ca-file="+ca,
		"--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts, "--service-account-issuer="+c.URL,
		"--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/24", "--enable-priority-and-fairness=false")
	admin := c.Kubeconfig(t, "admin", c.Certificate(t, "admin", "system:masters"), "")
	var err error
	if c.Admin, err = kubernetes.New(kubernetes.Cluster{Config: admin}); err != nil {
		t.Fatal(err)
	}
	Until(t, "the API server is ready", func() error {
		select {
		case err := <-ended:
			t.Fatalf("the API server ended: %v", err)
		default:
		}
		return c.Admin.Do(t.Context(), kubernetes.Request{Method: http.MethodGet, Path: "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin"}, nil)
	})
	c.run(t, program, "controllers", "--kubeconfig="+admin, "--controllers="+controllers, "--leader-elect=false", "--secure-port=0",
		"--service-account-private-key-file="+accounts, "--root-ca-file="+ca, "--use-service-account-credentials=false", "--concurrent-gc-syncs=2")
	return c
}

// run starts a part of the program and returns what says that it ended. Its output is shown where the test fails.
func (c *ControlPlane) run(t testing.TB, program, part string, args ...string) <-chan error {
	t.Helper()
	command := exec.Command(program, append([]string{part}, args...)...)
	output := filepath.Join(c.dir, part+".log")
	file, err := os.Create(output)
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = file, file
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended, gone := make(chan error, 1), make(chan struct{})
	go func() { ended <- command.Wait(); close(gone) }()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-gone
		_ = file.Close()
		if t.Failed() {
			text, _ := os.ReadFile(output)
			t.Logf("the end of what %s said:\n%s", part, text[max(0, len(text)-3000):])
		}
	})
	return ended
}

// freePorts are ports of 127.0.0.1 that nobody had a moment ago.
func freePorts(t testing.TB, count int) (ports []int) {
	t.Helper()
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after the last is found, or two may be the same
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// File writes a file that is there until the test ends, and returns its path.
func (c *ControlPlane) File(t testing.TB, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Until asks again until ask has no error, or too long.
func Until(t testing.TB, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", within, what, err)
		}
	}
}

// Module returns the directory of a Go module's files, fetched once by the go command. Its sum is that of
// the files that the test was written for.
func Module(t testing.TB, module, sum string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	command.Dir = t.TempDir() // of no module
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", module, err, text)
	}
	var found struct{ Dir, Sum string }
	if err := decode(text, &found); err != nil || found.Sum != sum {
		t.Fatalf("%s has the sum %q, expected %q: %v", module, found.Sum, sum, err)
	}
	return found.Dir
}

// Is reports whether an error of the API is of a kind.
func Is(err error, kind kubernetes.Kind) bool {
	failure, is := errors.AsType[*kubernetes.Error](err)
	return is && failure.Kind == kind
}
