package transfer_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/transfer"
)

// run serves a version of some text, as one run's control plane or another's does.
func run(t *testing.T, version loop.Version, form, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	parts := []transfer.Part{{Name: "model.safetensors", Size: int64(len(text))}}
	c, err := transfer.OpenCopy(version, form, manifestOf(t, dir, parts), parts, dir)
	if err != nil {
		t.Fatal(err)
	}
	source := &transfer.Source{}
	source.Add(c)
	return serve(t, source)
}

func content(t *testing.T, s *transfer.Store, version loop.Version) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Path(version), "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What lies in a receiver's directory may be another run's, or in another form.
func TestAnotherRunsVersion(t *testing.T) {
	dir := t.TempDir()
	for _, try := range []struct{ form, text string }{{"", "first run"}, {"", "second run"}, {"bf16", "second run, cast"}} {
		store := &transfer.Store{Dir: dir, Form: try.form}
		if _, err := store.Fetch(context.Background(), from(t, 7, try.form, run(t, 7, try.form, try.text))); err != nil {
			t.Fatal(err)
		}
		if got := content(t, store, 7); got != try.text {
			t.Errorf("fetched %q, have %q", try.text, got)
		}
	}
	// A version that is here costs an offer, not its bytes.
	store := &transfer.Store{Dir: dir}
	url := run(t, 8, "", "the same")
	for i, want := range []int64{8, 0} {
		if p, err := store.Fetch(context.Background(), from(t, 8, "", url)); err != nil || p.Bytes != want {
			t.Errorf("fetch %d took %d bytes (%v), want %d", i, p.Bytes, err, want)
		}
	}
}

// Whatever numbers lie there, what has come and what is served stays.
func TestPruningKeepsWhatMatters(t *testing.T) {
	store := &transfer.Store{Dir: t.TempDir(), Keep: 1}
	for _, v := range []loop.Version{49, 50} {
		if _, err := store.Fetch(context.Background(), from(t, v, "", run(t, v, "", "old run"))); err != nil {
			t.Fatal(err)
		}
	}
	store.Served(1)
	for _, v := range []loop.Version{1, 2, 3} {
		if _, err := store.Fetch(context.Background(), from(t, v, "", run(t, v, "", "new run"))); err != nil {
			t.Fatal(err)
		}
		if !store.Has(v) {
			t.Errorf("version %d was removed as soon as it had come", v)
		}
	}
	for v, want := range map[loop.Version]bool{1: true, 2: false, 3: true, 49: false, 50: false} {
		if store.Has(v) != want {
			t.Errorf("version %d there: %t, want %t", v, store.Has(v), want)
		}
	}
}

// A parent that stops in the middle is left for the next.
func TestSilentParent(t *testing.T) {
	dir, parts := publish(t, 2*transfer.ChunkBytes)
	good := origin(t, dir, parts)
	over := make(chan struct{})
	defer close(over)
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "chunks") {
			passOn(t, w, strings.TrimSuffix(good, "/t")+r.URL.String())
			return
		}
		_, _ = w.Write(make([]byte, 5))
		w.(http.Flusher).Flush()
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	defer silent.Close()
	store := &transfer.Store{Dir: t.TempDir(), Idle: 2 * time.Second}
	p, err := store.Fetch(context.Background(), from(t, 7, "", silent.URL+"/t", good))
	if err != nil || p.Parents != 2 {
		t.Errorf("%v after %d parents, want the second to help", err, p.Parents)
	}
}

// A parent with another version under the same number does not finish what one began.
func TestParentsOfTwoRuns(t *testing.T) {
	dir, parts := publish(t, 3*transfer.ChunkBytes)
	good := origin(t, dir, parts)
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "chunks") {
			return // nothing comes
		}
		passOn(t, w, strings.TrimSuffix(good, "/t")+r.URL.String())
	}))
	defer cut.Close()
	store := &transfer.Store{Dir: t.TempDir()}
	load := from(t, 7, "", cut.URL+"/t", good)
	load.Parents[1].URL = run(t, 7, "", "another run")
	_, err := store.Fetch(context.Background(), load)
	if err == nil || !strings.Contains(err.Error(), "another version under that number") || store.Has(7) {
		t.Errorf("%v, want a refusal", err)
	}
}

// Words of a process that is gone, or of a control plane before this one, are taken for nothing else.
func TestWordsOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := transfer.NewCoordinator(transfer.Options{Origin: "origin", Silence: 30 * time.Second, Engines: map[string]int{"e": 2}})
		say := func(instance string, req protocol.ReceiverRequest) (protocol.ReceiverReply, error) {
			req.Instance, req.Engine = instance, "e"
			return c.Next(context.Background(), "a", req)
		}
		none := protocol.ReceiverRequest{Served: loop.NoVersion, Loaded: loop.NoVersion}
		if _, err := c.Next(context.Background(), "a", protocol.ReceiverRequest{Engine: "other"}); err == nil || !strings.Contains(err.Error(), "the run has e") {
			t.Errorf("an engine that the run has not: %v", err)
		}
		if _, err := say("1", none); err != nil {
			t.Fatal(err)
		}
		loaded := make(chan error, 1)
		load := func(v loop.Version) {
			go func() { loaded <- c.Load(context.Background(), "e", v) }()
			synctest.Wait()
		}
		load(5)
		// It says again what it did for a control plane before.
		old := none
		old.Done, old.Loaded = 1, 4
		command, err := say("1", old)
		if err != nil || command.Version != 5 {
			t.Fatalf("%+v %v, want the command to load 5", command, err)
		}
		select {
		case err := <-loaded:
			t.Fatalf("version 5 counts as loaded (%v)", err)
		default:
		}
		// It says it is done, and does not hold the version.
		lie := none
		lie.Done = command.Seq
		if _, err := say("1", lie); err != nil {
			t.Fatal(err)
		}
		if err := <-loaded; err == nil {
			t.Error("a version that is not held counts as loaded")
		}
		load(6)
		command, _ = say("1", none)
		done := none
		done.Done, done.Loaded = command.Seq, 6
		if _, err := say("1", done); err != nil {
			t.Fatal(err)
		}
		if err := <-loaded; err != nil {
			t.Fatal(err)
		}
		// Another process has not loaded what the one before had.
		if _, err := say("2", none); err != nil {
			t.Fatal(err)
		}
		if err := c.Switch(context.Background(), "e", 6); err == nil {
			t.Error("a process that has loaded nothing was told to switch")
		}
		// Two at once under one name are refused.
		polling, cancel := context.WithCancel(context.Background())
		go func() {
			_, _ = c.Next(polling, "a", protocol.ReceiverRequest{Instance: "2", Engine: "e", WaitS: 60})
		}()
		synctest.Wait()
		if _, err := say("3", none); err == nil || !strings.Contains(err.Error(), "another process is receiver a") {
			t.Errorf("a second process: %v", err)
		}
		time.Sleep(50 * time.Second) // longer than silence, within its poll
		synctest.Wait()
		if len(c.Versions()) != 1 || c.Versions()[0].State == transfer.StateLost {
			t.Errorf("one that waits for a command counts as silent: %+v", c.Versions())
		}
		cancel()
		synctest.Wait()
	})
}

// What a parent sends can be compared with the manifest, too, and a version that does not
// fit it is not there.
func TestVerify(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.safetensors"), []byte("weights"), 0o644); err != nil {
		t.Fatal(err)
	}
	for text, right := range map[string]bool{"weights": true, "others!": false} {
		manifest := fmt.Sprintf(`{"files":[{"name":"m.safetensors","hash":"sha256:%x"}]}`, sha256.Sum256([]byte(text)))
		c, err := transfer.OpenCopy(7, "", []byte(manifest), []transfer.Part{{Name: "m.safetensors", Size: 7}}, dir)
		if err != nil {
			t.Fatal(err)
		}
		source := &transfer.Source{}
		source.Add(c)
		store := &transfer.Store{Dir: t.TempDir(), Always: true}
		_, err = store.Fetch(context.Background(), from(t, 7, "", serve(t, source)))
		if right != (err == nil) || right != store.Has(7) {
			t.Errorf("a manifest of %q: %v, there %t", text, err, store.Has(7))
		}
	}
}

// An offer that cannot be is refused before any room is made for it.
func TestImpossibleOffers(t *testing.T) {
	for _, parts := range [][]transfer.Part{{{Name: "m", Size: 1 << 60}}, {{Name: "m", Size: -1}}, {{Name: "a", Size: 60 << 40}, {Name: "b", Size: 60 << 40}}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(transfer.Offer{Version: 7, ManifestText: "{}", Parts: parts})
		}))
		store := &transfer.Store{Dir: t.TempDir()}
		if _, err := store.Fetch(context.Background(), transfer.Load{Version: 7, Offer: "sha256:0", Parents: []transfer.Parent{{URL: server.URL}}}); err == nil || !strings.Contains(err.Error(), "it offers") {
			t.Errorf("%v: %v", parts, err)
		}
		server.Close()
	}
}

// What a process that was killed while it removed a version left is removed by the next.
func TestRemovalIsWhole(t *testing.T) {
	store := &transfer.Store{Dir: t.TempDir()}
	if _, err := store.Fetch(context.Background(), from(t, 7, "", run(t, 7, "", "text"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(store.Path(7), filepath.Join(store.Dir, ".gone-v000007-1")); err != nil {
		t.Fatal(err)
	}
	if err := store.Clean(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(store.Dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := store.Discard(99); err != nil {
		t.Errorf("a version that is not there: %v", err)
	}
}

// A version that has arrived stays, and a receiver goes on, where what is not needed cannot be removed. Here it is not even found:
// the directory's name is half a pattern.
func TestRemovalThatFails(t *testing.T) {
	store := &transfer.Store{Dir: filepath.Join(t.TempDir(), "[")}
	p, err := store.Fetch(context.Background(), from(t, 7, "", run(t, 7, "", "text")))
	if err != nil || p.Kept == nil {
		t.Fatalf("%v, and %v of what is not needed; want that alone", err, p.Kept)
	}
	if got := content(t, store, 7); got != "text" {
		t.Errorf("the version has %q", got)
	}
	if store.Clean() == nil {
		t.Error("what earlier processes left was removed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked, told := false, ""
	client := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		asked = true
		cancel()
		return nil, context.Canceled
	})}
	agent := &transfer.Agent{Control: "http://control", Name: "a", Engine: "e", Delivery: store, Client: client, Logf: func(format string, args ...any) { told += fmt.Sprintf(format, args...) }}
	if err := agent.Run(ctx); !asked || !strings.Contains(told, "removing what earlier processes left") {
		t.Errorf("%v, asked %v, told %q", err, asked, told)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A receiver that ends in order is forgotten: its engine goes on without it.
func TestTakingLeave(t *testing.T) {
	c := transfer.NewCoordinator(transfer.Options{Origin: "/transfer"})
	asked := make(chan struct{}, 1)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req protocol.ReceiverRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		if command, err := c.Next(r.Context(), strings.TrimPrefix(r.URL.Path, "/api/v1/receivers/"), req); err == nil {
			_ = json.NewEncoder(w).Encode(command)
		}
	}))
	defer control.Close()
	agent := &transfer.Agent{Control: control.URL, Name: "a", Engine: "e", Delivery: &transfer.Store{Dir: t.TempDir()}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = agent.Run(ctx)
	}()
	<-asked
	cancel()
	<-ended
	if left := c.Versions(); len(left) != 0 {
		t.Errorf("%+v is still known", left)
	}
	if err := c.Load(context.Background(), "e", 1); err != nil {
		t.Errorf("its engine does not go on: %v", err)
	}
}

// A limit is no silence: a link slower than a chunk in the time that a parent may be silent.
func TestSlowLinks(t *testing.T) {
	dir, parts := publish(t, 600<<10)
	c, err := transfer.OpenCopy(7, "", manifestOf(t, dir, parts), parts, dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, limit := range map[string]float64{"at the source": 0, "at the receiver, too": 300 << 10} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			to := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				source := &transfer.Source{Limit: transfer.NewBucket(400 << 10)}
				source.Add(c)
				store := &transfer.Store{Dir: to, Idle: time.Second, Limit: transfer.NewBucket(limit), Client: pipeTo(t, source.Handler("/t"))}
				began := time.Now()
				if _, err := store.Fetch(t.Context(), transfer.Load{Version: 7, Offer: source.Digest(7, ""), Parents: []transfer.Parent{{URL: "http://pipe/t"}}}); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took <= store.Idle {
					t.Errorf("it took %v: the link was not slow", took)
				}
			})
		})
	}
}

// pipeTo serves through pipes in memory, which have a bubble's clock, and returns their client.
func pipeTo(t *testing.T, handler http.Handler) *http.Client {
	t.Helper()
	l := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		l.accepted <- theirs
		return ours, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-ended
	})
	return &http.Client{Transport: transport}
}

// pipes is a listener in memory.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// What lies on a receiver's disk may have been torn when its power was lost: a new process compares it with its hashes.
func TestTornVersionIsFetchedAgain(t *testing.T) {
	dir, url := t.TempDir(), run(t, 7, "", "whole")
	fetch := func(s *transfer.Store, bytes int64) {
		t.Helper()
		p, err := s.Fetch(t.Context(), from(t, 7, "", url))
		if err != nil || p.Bytes != bytes || content(t, s, 7) != "whole" {
			t.Errorf("fetched %d bytes (%v), and have %q", p.Bytes, err, content(t, s, 7))
		}
	}
	fetch(&transfer.Store{Dir: dir}, 5)
	path := filepath.Join((&transfer.Store{Dir: dir}).Path(7), "model.safetensors")
	for _, torn := range []string{"who", "whale", ""} {
		if err := os.WriteFile(path, []byte(torn), 0o644); err != nil {
			t.Fatal(err)
		}
		fetch(&transfer.Store{Dir: dir}, 5)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	fetch(&transfer.Store{Dir: dir}, 5)
	fetch(&transfer.Store{Dir: dir}, 0)
}

// HEAD of a version's chunks reads none of them.
func TestHeadOfChunks(t *testing.T) {
	dir, content := t.TempDir(), make([]byte, 1<<20)
	file := filepath.Join(dir, "model.safetensors")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	parts := []transfer.Part{{Name: "model.safetensors", Size: int64(len(content))}}
	c, err := transfer.OpenCopy(7, "", manifestOf(t, dir, parts), parts, dir)
	if err == nil {
		err = os.Remove(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	source := &transfer.Source{}
	source.Add(c)
	response, err := http.Head(serve(t, source) + "/7/chunks?from=0")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ContentLength <= int64(len(content)) {
		t.Errorf("%d, %d bytes", response.StatusCode, response.ContentLength)
	}
}
