package sandboxtest

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

func testFiles(t *testing.T, s *suite) {
	box := s.box(t)
	for name, content := range map[string][]byte{"empty": {}, "bytes": everyByte(), "large": bytes.Repeat(everyByte(), 4096)} {
		path := sandbox.Work + "/deep/er/" + name
		if err := box.Write(bounded(t), path, content, 0o644); err != nil {
			t.Fatalf("write %s: %v", name, err)
		}
		got, err := box.Read(bounded(t), path, int64(len(content)))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes and %v, want %d", name, len(got), err, len(content))
		}
		if len(content) == 0 {
			continue
		}
		if _, err := box.Read(bounded(t), path, int64(len(content)-1)); !errors.Is(err, sandbox.ErrTooLarge) {
			t.Errorf("%s under a limit of one byte less: %v", name, err)
		}
	}
	if err := box.Write(bounded(t), sandbox.Work+"/deep/er/bytes", []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := says(t, box, "cat deep/er/bytes; ls -l deep/er/bytes"); !strings.HasPrefix(got, "short-rw-------") {
		t.Errorf("written over: %q", got)
	}
	if err := box.Write(bounded(t), sandbox.Work+"/program", []byte("#!/bin/sh\necho $0 $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := says(t, box, "./program argument"); got != "./program argument\n" {
		t.Errorf("a program that was written: %q", got)
	}
	says(t, box, "printf '\\000\\377' > made; chmod 600 made")
	if got, err := box.Read(bounded(t), sandbox.Work+"/made", 10); err != nil || string(got) != "\x00\xff" {
		t.Errorf("a file that a command made: %q, %v", got, err)
	}
	odd := sandbox.Work + "/a b\n'\xff*"
	if err := box.Write(bounded(t), odd, []byte("odd"), 0o644); err != nil {
		t.Errorf("an odd name: %v", err)
	} else if got, err := box.Read(bounded(t), odd, 10); err != nil || string(got) != "odd" {
		t.Errorf("an odd name: %q, %v", got, err)
	}
}

// testNoFiles: what is no plain file is an error, at once.
func testNoFiles(t *testing.T, s *suite) {
	box := s.box(t)
	says(t, box, "mkdir directory full; : > full/file; mkfifo fifo; ln -s loop loop; ln -s missing dangling; : > file")
	for path, want := range map[string]error{
		sandbox.Work + "/missing":            fs.ErrNotExist,
		sandbox.Work + "/missing/further":    fs.ErrNotExist,
		sandbox.Work + "/dangling":           fs.ErrNotExist,
		sandbox.Work + "/directory":          fs.ErrInvalid,
		sandbox.Work + "/fifo":               fs.ErrInvalid,
		"/dev/null":                          fs.ErrInvalid,
		"/dev/zero":                          fs.ErrInvalid,
		sandbox.Work + "/loop":               nil,
		sandbox.Work + "/file/further":       nil,
		"/" + strings.Repeat("x", 5000):      nil,
		"/work/" + strings.Repeat("y/", 999): nil,
	} {
		_, err := box.Read(bounded(t), path, 1<<20)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("read %.60s: %v, want %v", path, err, want)
		}
	}
	refused := []string{sandbox.Work + "/directory", sandbox.Work + "/full", sandbox.Work + "/loop", sandbox.Work + "/file/further", "/" + strings.Repeat("x", 5000)}
	if s.boundary.Files {
		refused = append(refused, "/usr/headway-sandboxtest", "/bin/sh", "/proc/version")
	}
	for _, path := range refused {
		if err := box.Write(bounded(t), path, []byte("x"), 0o644); err == nil {
			t.Errorf("%.60s was written", path)
		}
	}
	// A pipe is replaced or refused: nobody reads it, and writing must not wait for one who does.
	_ = box.Write(bounded(t), sandbox.Work+"/fifo", []byte("x"), 0o644)
	works(t, box)
}

// testLinks: they are the box's own business, and end at its border.
func testLinks(t *testing.T, s *suite) {
	box := s.box(t)
	says(t, box, "echo inside > target; ln -s target relative; mkdir d; ln -s d e; echo deep > d/file")
	for path, want := range map[string]string{"/relative": "inside\n", "/e/file": "deep\n", "/d/../target": "inside\n"} {
		if got, err := box.Read(bounded(t), sandbox.Work+path, 100); err != nil || string(got) != want {
			t.Errorf("read %s: %q, %v", path, got, err)
		}
	}
	if !s.boundary.Files || s.Remote {
		return
	}
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o666); err != nil {
		t.Fatal(err)
	}
	says(t, box, "ln -s '"+secret+"' out; ln -s '"+outside+"' outdir; ln -s / root; ln -s /proc/self/root procroot")
	for _, path := range []string{"/out", "/outdir/secret", "/root" + secret, "/procroot" + secret, "/../../../../.." + secret} {
		if got, err := box.Read(bounded(t), sandbox.Work+path, 100); err == nil && string(got) == "of the host" {
			t.Errorf("read %s of the host: %q", path, got)
		}
		_ = box.Write(bounded(t), sandbox.Work+path, []byte("of the box"), 0o666)
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "of the host" {
		t.Errorf("the host's file is %q, %v", got, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("the host's directory: %v, %v", entries, err)
	}
}

func testMounts(t *testing.T, s *suite) {
	if !s.boundary.Files || s.Remote {
		t.Skip("boxes of this driver have no view of files of their own")
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "data"), []byte("of the host"), 0o666); err != nil {
		t.Fatal(err)
	}
	box := s.box(t, func(spec *sandbox.Spec) {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Host: outside, Box: "/data/inner"})
	})
	if got, err := box.Read(bounded(t), "/data/inner/data", 100); err != nil || string(got) != "of the host" {
		t.Errorf("read: %q, %v", got, err)
	}
	if err := box.Write(bounded(t), "/data/inner/data", []byte("of the box"), 0o666); err == nil {
		t.Error("a file of a mount was written")
	}
	if got := says(t, box, "{ touch /data/inner/new; rm -f /data/inner/data; echo x > /data/inner/data; } 2>/dev/null; cat /data/inner/data"); got != "of the host" {
		t.Errorf("a mount after writing to it: %q", got)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("the host's directory: %v, %v", entries, err)
	}
	for what, mount := range map[string]sandbox.Mount{
		"a host directory that is missing":  {Host: filepath.Join(outside, "missing"), Box: "/data"},
		"a host directory that is relative": {Host: "relative", Box: "/data"},
		"a place that is relative":          {Host: outside, Box: "data"},
		"a NUL":                             {Host: outside, Box: "/data\x00"},
		"a place that leads up":             {Host: outside, Box: "/data/../../x"},
	} {
		box, err := s.driver.Create(bounded(t), s.id(), s.spec(func(spec *sandbox.Spec) { spec.Mounts = []sandbox.Mount{mount} }))
		if err == nil {
			t.Errorf("%s was mounted", what)
			box.Close(bounded(t))
		}
	}
}

// testApart: two boxes have nothing in common that can be written.
func testApart(t *testing.T, s *suite) {
	one, other := s.box(t), s.box(t)
	if one.ID() == other.ID() {
		t.Fatalf("both are %s", one.ID())
	}
	says(t, one, "echo one > name")
	says(t, other, "echo other > name; echo more > more")
	if got := says(t, one, "cat name; ls"); got != "one\nname\n" {
		t.Errorf("the one sees %q", got)
	}
	if !s.boundary.Files {
		return
	}
	for _, dir := range []string{"/tmp", "/dev/shm", "/var/tmp", "/run"} {
		script := "echo one > " + dir + "/headway-apart-" + s.owner + " && echo written || echo not"
		if says(t, one, script) == "written\n" {
			if got := says(t, other, "cat "+dir+"/headway-apart-"+s.owner+" 2>/dev/null || echo none"); got != "none\n" {
				t.Errorf("%s is common to both: %q", dir, got)
			}
		}
	}
}

// testNetwork: who asks for the host's network has it, and nobody else.
func testNetwork(t *testing.T, s *suite) {
	if !s.boundary.Network || s.Remote {
		t.Skip("boxes of this driver have no network of their own")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("of the host"))
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	asking := sandbox.Command{Argv: []string{"bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/" + port + " && cat <&3"}}
	for _, network := range []bool{true, false} {
		result := run(t, s.box(t, func(spec *sandbox.Spec) { spec.Network = network }), asking)
		if result.Exit == 127 {
			t.Skip("there is no bash to connect with")
		}
		if got := string(result.Stdout) == "of the host"; got != network {
			t.Errorf("network asked for: %t, but %s", network, described(result))
		}
	}
}
