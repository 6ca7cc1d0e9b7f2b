package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/storetest"
)

// freed is the port behind the last that freeAddress gave.
var freed = 25_000 + os.Getpid()%5_000

// freeAddress is a port of this machine that nothing listens on. It is below those that the kernel gives to connections, so that
// it stays free while a server is started again.
func freeAddress(t *testing.T) string {
	t.Helper()
	for ; freed < 32_000; freed++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", freed)); err == nil {
			must(t, l.Close())
			freed++
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// listening are the options of a store whose server takes in the cells b and c, and of each of those.
func listening(t *testing.T) (o Options, cell func(name string) Options) {
	t.Helper()
	dir := t.TempDir()
	file := func(cell string) string { return filepath.Join(dir, "cells", cell, "nats.pem") }
	o = Options{Dir: filepath.Join(dir, "nats"), Run: "heard", CellTurns: true, Listen: freeAddress(t), Cells: map[string]string{"b": file("b"), "c": file("c")}}
	return o, func(name string) Options {
		return asCell(t, Options{URL: "nats://" + o.Listen, Run: o.Run, CellFile: file(name)}, name)
	}
}

// TestServerTakesCellsIn: an embedded server that listens has a cell follow, speak, put payloads and keep turns, and again after
// it was started anew.
func TestServerTakesCellsIn(t *testing.T) {
	o, cell := listening(t)
	s := open(t, o)
	enc := begin(t, s)
	heard := make(chan string, 9)
	stop, err := s.HearCells(func(cell string, word []byte) []byte {
		heard <- cell + " says " + string(word)
		return []byte("yes")
	})
	must(t, err)
	defer stop()
	b := openCell(t, cell("b"), "b")
	answers, back := make(chan string, 9), make(chan struct{}, 9)
	b.Listen(func(answer []byte) { answers <- string(answer) }, func() { back <- struct{}{} })
	lines := make(chan []byte, 9)
	ends := make(chan error, 1)
	go func() {
		ends <- b.Follow(t.Context(), func(l []byte, _ bool) error { lines <- bytes.Clone(l); return nil })
	}()
	for round := range int64(3) {
		if round > 0 {
			must(t, s.embedded.restart())
			<-back
		}
		event := storetest.Event(enc, 1+round)
		must(t, s.Append([][]byte{event}))
		if got := <-lines; !bytes.Equal(got, event) {
			t.Errorf("the cell reads %s, want %s", got, event)
		}
		must(t, b.Say([]byte("word")))
		if got, answer := <-heard, <-answers; got != "b says word" || answer != "yes" {
			t.Errorf("the writer hears %q, and the cell %q", got, answer)
		}
		id := port.RolloutID{Group: 1, Sample: int32(round), Attempt: 1}
		refer(t, s, b, storetest.Sample(id, 3))
		must(t, b.KeepTurn(id, 0, []byte("turn")))
	}
	select {
	case err := <-ends:
		t.Errorf("the cell follows no more: %v", err)
	default:
	}
	readsTurns(t, openCell(t, cell("b"), "b"), port.RolloutID{Group: 1, Sample: 2, Attempt: 1}, [][]byte{[]byte("turn")})
	c := openCell(t, cell("c"), "c")
	must(t, c.Say([]byte("word")))
	if got := <-heard; got != "c says word" {
		t.Errorf("the writer hears %q", got)
	}
}

// planeEnded begins a run, has cell b enter its server, and ends the plane. The file of cell b is as before, and back says when the
// cell has entered again.
func planeEnded(t *testing.T) (o Options, l *Link, back chan struct{}, before []byte) {
	t.Helper()
	o, cell := listening(t)
	first := open(t, o)
	begin(t, first)
	l, back = openCell(t, cell("b"), "b"), make(chan struct{}, 9)
	l.Listen(func([]byte) {}, func() { back <- struct{}{} })
	before, err := os.ReadFile(o.Cells["b"])
	must(t, err)
	must(t, first.Close())
	return o, l, back, before
}

// Files of cells stay as they are while the server's key does, and a process that comes after it has the same.
func TestFilesOfCellsStay(t *testing.T) {
	o, _, back, before := planeEnded(t)
	open(t, o)
	<-back // by what it had
	after, err := os.ReadFile(o.Cells["b"])
	if must(t, err); !bytes.Equal(before, after) {
		t.Error("the file of cell b is another")
	}
	c, err := os.ReadFile(o.Cells["c"])
	if must(t, err); bytes.Equal(c, after) {
		t.Error("two cells have the same file")
	}
	info, err := os.Stat(o.Cells["b"])
	if must(t, err); info.Mode().Perm() != 0o600 {
		t.Errorf("the file of cell b has the mode %v", info.Mode())
	}
}

// TestCellsTakeNewSecrets: a cell that goes on enters by the file that a control plane with new secrets has written.
func TestCellsTakeNewSecrets(t *testing.T) {
	o, l, back, before := planeEnded(t)
	must(t, os.Remove(filepath.Join(o.Dir, "server.pem")))
	open(t, o)
	<-back
	if after, err := os.ReadFile(o.Cells["b"]); err != nil || bytes.Equal(before, after) {
		t.Errorf("the file of cell b is the same: %v", err)
	}
	must(t, l.Say([]byte("word")))
}

// TestServerLetsNobodyElseIn: without a file, with that of another cell or of another server, and in plain text, nobody is let in.
func TestServerLetsNobodyElseIn(t *testing.T) {
	o, cell := listening(t)
	begin(t, open(t, o))
	stranger, ofStranger := listening(t)
	open(t, stranger)
	for name, c := range map[string]struct {
		options Options
		cell    string
		want    string
	}{
		"no file":               {Options{URL: "nats://" + o.Listen, Run: o.Run}, "b", "x509"},
		"the file of another":   {cell("c"), "b", "Authorization Violation"},
		"another server's file": {func() Options { o := cell("b"); o.CellFile = ofStranger("b").CellFile; return o }(), "b", "x509"},
	} {
		l, err := OpenLink(t.Context(), c.options, c.cell)
		if err == nil {
			_ = l.Close()
			t.Errorf("%s: it is let in", name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	plain, err := nats.Connect("nats://"+o.Listen, nats.UserInfo(ownUser, "x"), nats.TLSHandshakeFirst())
	if err == nil {
		plain.Close()
		t.Error("a stranger is let in")
	}
	for text, want := range map[string]string{"": "no certificate first", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "no certificate first"} {
		must(t, os.WriteFile(o.Cells["c"], []byte(text), 0o600))
		if _, err := OpenLink(t.Context(), cell("c"), "c"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("by a file of %q: %v", text, err)
		}
	}
	whole, err := os.ReadFile(o.Cells["b"])
	must(t, err)
	must(t, os.WriteFile(o.Cells["c"], whole[:bytes.Index(whole, []byte("-----BEGIN "+secretBlock))], 0o600))
	if _, err := OpenLink(t.Context(), cell("c"), "c"); err == nil || !strings.Contains(err.Error(), "no secret behind its certificate") {
		t.Errorf("by a certificate alone: %v", err)
	}
}

// A cell that is there before its server waits for both the file and the server, as long as its context lasts.
func TestCellWaitsForItsServer(t *testing.T) {
	o, cell := listening(t)
	ended, end := context.WithCancelCause(t.Context())
	over := errors.New("it was interrupted")
	end(over)
	if _, err := OpenLink(ended, cell("b"), "b"); !errors.Is(err, over) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	first := open(t, o)
	begin(t, first)
	must(t, first.Close())
	if _, err := OpenLink(ended, cell("b"), "b"); !errors.Is(err, over) || !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("without a server: %v", err)
	}
	must(t, os.RemoveAll(o.Cells["b"]))
	opened := make(chan error, 1)
	go func() {
		l, err := OpenLink(t.Context(), cell("b"), "b")
		if err == nil {
			err = l.Close()
		}
		opened <- err
	}()
	open(t, o)
	must(t, <-opened)
}

// A file of credentials that is not there is an error at once: no server writes it.
func TestCredentialsThatAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := OpenLink(t.Context(), Options{URL: "nats://127.0.0.1:1", Run: "r", TLSCA: filepath.Join(t.TempDir(), "none.pem")}, "b")
		if !errors.Is(err, fs.ErrNotExist) || time.Since(began) > 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A server that cannot listen says why, and has its directory again once it can.
func TestServerThatCannotListen(t *testing.T) {
	o, _ := listening(t)
	taken, err := net.Listen("tcp", o.Listen)
	must(t, err)
	if s, err := Open(t.Context(), o); err == nil {
		_ = s.Close()
		t.Error("it listens where another does")
	} else if !strings.Contains(err.Error(), o.Listen) || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	must(t, taken.Close())
	begin(t, open(t, o))
	o, _ = listening(t)
	must(t, os.MkdirAll(o.Dir, 0o700))
	must(t, os.WriteFile(filepath.Join(o.Dir, keyFile), []byte("no key"), 0o600))
	if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "remove it, and start the cells of the run again") {
		t.Errorf("with a damaged key: %v", err)
	}
	o, _ = listening(t)
	o.URL, o.Dir = "nats://x", ""
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "Listen is") {
		t.Errorf("a cluster that is to listen: %v", err)
	}
}
