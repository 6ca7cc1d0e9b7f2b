package transfer_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/transfer"
)

// A receiver that is hostile gets no token of others, and none of its bytes are installed: neither under
// a manifest of its own, nor under the control plane's, nor by sending others somewhere else.
func TestHostileParent(t *testing.T) {
	const right, forged, token = "the trainer's weights", "the attacker's weights", "engine-token-0123456789"
	control := run(t, 7, "", right)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a request went to %s, with %q", r.URL, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	chunk := func(w http.ResponseWriter, text string) {
		head := binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(len(text)))
		head = binary.LittleEndian.AppendUint32(head, crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
		fmt.Fprintf(w, "%s%s", head, text)
	}
	mine := run(t, 7, "", forged)
	for name, evil := range map[string]http.HandlerFunc{
		"a manifest of its own": func(w http.ResponseWriter, r *http.Request) {
			passOn(t, w, strings.TrimSuffix(mine, "/t")+r.URL.String())
		},
		"the control plane's manifest": func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/chunks") {
				chunk(w, strings.ToUpper(right))
				return
			}
			passOn(t, w, strings.TrimSuffix(control, "/t")+r.URL.String())
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/latest/meta-data", http.StatusFound)
		},
	} {
		var heard []string
		parent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			heard = append(heard, r.Header.Get("Authorization"))
			evil(w, r)
		}))
		store := &transfer.Store{Dir: t.TempDir(), Token: func() string { return token }}
		load := from(t, 7, "", parent.URL+"/t", control)
		load.Parents[0].Key = "key"
		p, err := store.Fetch(t.Context(), load)
		parent.Close()
		if err != nil || content(t, store, 7) != right {
			t.Errorf("%s: %v, and %q is installed", name, err, content(t, store, 7))
		}
		if strings.HasPrefix(name, "the control plane") && (p.Forged == nil || !strings.Contains(p.Forged.Error(), "sha256:")) {
			t.Errorf("%s: it is said of no one that it forged (%v)", name, p.Forged)
		}
		for _, authorization := range heard {
			if authorization != "Bearer key" {
				t.Errorf("%s: the parent was sent %q", name, authorization)
			}
		}
		alone := &transfer.Store{Dir: t.TempDir()}
		load.Parents = load.Parents[:1]
		if _, err := alone.Fetch(t.Context(), load); err == nil || alone.Has(7) {
			t.Errorf("%s: version 7 is there (%v)", name, err)
		}
	}
}

// The control plane is sent the token, at its own address alone.
func TestControlPlaneRedirects(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was sent %q", r.URL, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	control := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer control.Close()
	ctx, cancel := context.WithCancel(t.Context())
	token := func() string { return "engine-token-0123456789" }
	agent := &transfer.Agent{Control: control.URL, Token: token, Name: "a", Engine: "e", Delivery: &transfer.Store{Dir: t.TempDir()},
		Logf: func(string, ...any) { cancel() }}
	if err := agent.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	store := &transfer.Store{Dir: t.TempDir(), Token: token}
	if _, err := store.Fetch(t.Context(), transfer.Load{Version: 7, Offer: "sha256:0", Parents: []transfer.Parent{{URL: control.URL + "/t", Control: true}}}); err == nil {
		t.Error("a version came by a redirect")
	}
}

// A receiver may send others to the address that it calls from, and to nothing else.
func TestAnnouncedAddresses(t *testing.T) {
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		names := map[string][]netip.Addr{
			"node3":    {netip.MustParseAddr("10.0.0.3")},
			"rebound":  {netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.9")},
			"metadata": {netip.MustParseAddr("169.254.169.254")},
		}
		if found := names[host]; found != nil {
			return found, nil
		}
		return nil, &net.DNSError{Err: "no answer", Name: host, IsNotFound: host != "slow", IsTimeout: host == "slow"}
	}
	for _, c := range []struct{ address, peer, dial, want string }{
		{"https://10.0.0.3:7071/t", "10.0.0.3", "10.0.0.3:7071", ""},
		{"https://10.0.0.3/t", "::ffff:10.0.0.3", "10.0.0.3:443", ""},
		{"https://[fd00::3]:7071/t", "fd00::3", "[fd00::3]:7071", ""},
		{"https://node3:7071/t", "10.0.0.3", "10.0.0.3:7071", ""},
		{"https://rebound:7071/t", "10.0.0.9", "10.0.0.9:7071", ""},
		{"http://127.0.0.1:7071/t", "127.0.0.1", "127.0.0.1:7071", ""},
		{"", "10.0.0.3", "", ""},
		{"https://10.0.0.4:7071/t", "10.0.0.3", "", "calls from 10.0.0.3"},
		{"https://node3:7071/t", "10.0.0.4", "", "calls from 10.0.0.4"},
		{"https://nowhere:7071/t", "10.0.0.3", "", "cannot be resolved"},
		{"https://slow:7071/t", "10.0.0.3", "", "cannot be resolved now"},
		{"http://10.0.0.3:7071/t", "10.0.0.3", "", "in clear"},
		{"http://127.0.0.1:7071/t", "10.0.0.3", "", "calls from"},
		{"http://[::ffff:127.0.0.1]:7071/t", "10.0.0.3", "", "calls from"},
		{"https://169.254.169.254/t", "10.0.0.3", "", "calls from"},
		{"https://169.254.169.254/t", "169.254.169.254", "", "calls from"},
		{"https://metadata/t", "127.0.0.1", "", "calls from"},
		{"https://8.8.8.8/t", "127.0.0.1", "", "calls from"},
		{"https://0.0.0.0:7071/t", "0.0.0.0", "", "calls from"},
		{"https://10.0.0.3:7071/t", "", "", "calls from"},
		{"https://10.0.0.3:7071/latest", "10.0.0.3", "", "its path"},
		{"https://10.0.0.3:7071/t?x=1", "10.0.0.3", "", "want an address"},
		{"https://u:p@10.0.0.3:7071/t", "10.0.0.3", "", "want an address"},
		{"gopher://10.0.0.3:7071/t", "10.0.0.3", "", "want an address"},
		{"https://10.0.0.3:0/t", "10.0.0.3", "", "its port"},
		{"https://10.0.0.3:70710/t", "10.0.0.3", "", "its port"},
		{"https://10.0.0.3:7071/t", "10.0.0.3", "short", "its secret"},
	} {
		coordinator := transfer.NewCoordinator(transfer.Options{Origin: "/t", Lookup: lookup})
		req := protocol.ReceiverRequest{Engine: "e", Instance: "1", Address: c.address, Secret: "0123456789abcdef"}
		if c.dial == "short" {
			req.Secret, c.dial = "0123456789abcde", ""
		}
		if c.peer != "" {
			req.Caller.Peer = netip.MustParseAddr(c.peer)
		}
		_, err := coordinator.Next(t.Context(), "a", req)
		if c.want != "" {
			refusal, ok := errors.AsType[*protocol.Refusal](err)
			code := protocol.CodeInvalid
			if strings.Contains(c.address, "slow") { // it is asked again
				code = protocol.CodeUnavailable
			}
			if !ok || refusal.Code != code || !strings.Contains(refusal.Message, c.want) || len(coordinator.Versions()) != 0 {
				t.Errorf("%s from %s: %v, want a refusal with %q and no receiver", c.address, c.peer, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s from %s: %v", c.address, c.peer, err)
			continue
		}
		if dial := parentsOfNext(t, coordinator)[0].Dial; dial != c.dial {
			t.Errorf("%s from %s: others connect to %q, want %q", c.address, c.peer, dial, c.dial)
		}
	}
}

// parentsOfNext has the receiver that is known load version 7, and then another, and returns the
// parents of the other.
func parentsOfNext(t *testing.T, c *transfer.Coordinator) (parents []protocol.ReceiverParent) {
	t.Helper()
	other := protocol.ReceiverRequest{Engine: "f", Instance: "2"}
	if _, err := c.Next(t.Context(), "b", other); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, engine := range []string{"e", "f"} {
		_ = c.Load(ended, engine, 7) // its context has ended: the command is given, and not waited for
	}
	command, err := c.Next(t.Context(), "b", other)
	if err != nil || command.Kind != protocol.ReceiveLoad {
		t.Fatalf("%+v, %v", command, err)
	}
	return command.Parents
}

// A receiver's versions are for those whom the control plane sends, each for one version and a while.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "the secret of a parent"
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t"})
		req := protocol.ReceiverRequest{Engine: "e", Instance: "1", Address: "http://127.0.0.1:7071/t", Secret: secret}
		req.Caller.Peer = netip.MustParseAddr("127.0.0.1")
		if _, err := c.Next(t.Context(), "a", req); err != nil {
			t.Fatal(err)
		}
		key := parentsOfNext(t, c)[0].Key
		if strings.Contains(key, secret) {
			t.Fatalf("the key %q has the secret", key)
		}
		ask := func(secret, path, key string) int {
			source := &transfer.Source{Secret: secret}
			request := httptest.NewRequest(http.MethodGet, path, nil)
			if key != "" {
				request.Header.Set("Authorization", "Bearer "+key)
			}
			answer := httptest.NewRecorder()
			source.Handler("/t").ServeHTTP(answer, request)
			return answer.Code
		}
		const here, refused = http.StatusNotFound, http.StatusUnauthorized // it is asked for a version that it has not got
		for _, try := range []struct {
			secret, path, key string
			want              int
		}{
			{secret, "/t/7", key, here}, {secret, "/t/7/chunks?from=0", key, here},
			{secret, "/t/7", "", refused}, {secret, "/t/7/chunks?from=0", "", refused},
			{secret, "/t/8", key, refused}, {secret, "/t/7?form=bf16", key, refused},
			{"another parent's secret", "/t/7", key, refused},
			{secret, "/t/7", key[:len(key)-1] + "x", refused}, {secret, "/t/7", "9" + key, refused}, {secret, "/t/7", "engine-token-0123456789", refused},
		} {
			if got := ask(try.secret, try.path, try.key); got != try.want {
				t.Errorf("%s with %q: %d, want %d", try.path, try.key, got, try.want)
			}
		}
		time.Sleep(time.Hour + time.Second)
		if got := ask(secret, "/t/7", key); got != refused {
			t.Errorf("a key of yesterday: %d", got)
		}
	})
}

// The bytes of a parent count once they have the control plane's hashes, not before: what a receiver
// passes on meanwhile is not installed anywhere.
func TestNoOffer(t *testing.T) {
	store := &transfer.Store{Dir: t.TempDir()}
	load := from(t, 7, "", run(t, 7, "", "text"))
	load.Offer = ""
	if _, err := store.Fetch(t.Context(), load); err == nil || store.Has(7) {
		t.Errorf("a version without a hash is installed (%v)", err)
	}
}

// Whoever holds an engine's token invents stages, and the engine goes on.
func TestInventedStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t", Engines: map[string]int{"e": 1}})
		stop := start(t, c, &stage{name: "a", engine: "e"})
		defer stop()
		refused := 0
		for i := range 3000 {
			_, err := c.Next(t.Context(), fmt.Sprintf("invented-%d", i), protocol.ReceiverRequest{Engine: "e", Stage: i, Served: loop.NoVersion, Loaded: loop.NoVersion})
			if _, ok := errors.AsType[*protocol.Refusal](err); ok {
				refused++
			}
		}
		for _, step := range []func(context.Context, string, loop.Version) error{c.Load, c.Switch} {
			if err := step(t.Context(), "e", 2); err != nil {
				t.Fatal(err)
			}
		}
		if got := states(c); refused != 3000 || got != "e/0 serving 2" || len(c.Unsound()) != 0 {
			t.Errorf("%d of 3000 refused, %s, unsound %v", refused, got, c.Unsound())
		}
	})
}

// A stranger gives an engine that takes its weights otherwise no stage: silent, it would hold the engine for good.
func TestEnginesWithoutReceivers(t *testing.T) {
	c := transfer.NewCoordinator(transfer.Options{Origin: "/t", Engines: map[string]int{"e": 1, "disk": 0}})
	_, err := c.Next(t.Context(), "evil", protocol.ReceiverRequest{Engine: "disk", Instance: "i", Served: loop.NoVersion, Loaded: loop.NoVersion})
	refusal, ok := errors.AsType[*protocol.Refusal](err)
	if !ok || refusal.Code != protocol.CodeConflict || !strings.Contains(refusal.Message, "engines.*.stages") {
		t.Errorf("%v, want a conflict that names the key", err)
	}
	if len(c.Versions()) != 0 || len(c.Unsound()) != 0 {
		t.Errorf("there is %s, unsound %v", states(c), c.Unsound())
	}
}

// A stranger that came for a stage and fell silent is taken away by who takes leave for it, or who comes for its stage.
func TestSilentStranger(t *testing.T) {
	for _, leave := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := transfer.NewCoordinator(transfer.Options{Origin: "/t", Engines: map[string]int{"e": 2}})
			defer start(t, c, &stage{name: "a", engine: "e", number: 1})()
			word := protocol.ReceiverRequest{Engine: "e", Instance: "i", Served: loop.NoVersion, Loaded: loop.NoVersion}
			word.Caller.Token = "stolen"
			if _, err := c.Next(t.Context(), "evil", word); err != nil {
				t.Fatal(err)
			}
			time.Sleep(31 * time.Second)
			if err := c.Load(t.Context(), "e", 2); err == nil {
				t.Fatal("a load succeeds with a silent stage")
			}
			if leave {
				operator := protocol.ReceiverRequest{Engine: "e", Leaving: true}
				operator.Caller.Token = "admin"
				if _, err := c.Next(t.Context(), "evil", operator); err != nil {
					t.Fatal(err)
				}
			} else {
				defer start(t, c, &stage{name: "b", engine: "e"})()
			}
			for _, step := range []func(context.Context, string, loop.Version) error{c.Load, c.Switch} {
				if err := step(t.Context(), "e", 2); err != nil {
					t.Fatal(err)
				}
			}
			if len(c.Unsound()) != 0 || strings.Contains(states(c), transfer.StateLost) {
				t.Errorf("%s, unsound %v", states(c), c.Unsound())
			}
		})
	}
}

// What a source offers is what the hash is of: its manifest, and its files in order.
func TestDigest(t *testing.T) {
	url := run(t, 7, "", "text")
	response, err := http.Get(url + "/7")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var offer transfer.Offer
	if err := json.NewDecoder(response.Body).Decode(&offer); err != nil {
		t.Fatal(err)
	}
	digest := offer.Digest()
	for name, change := range map[string]func(o *transfer.Offer){
		"manifest": func(o *transfer.Offer) { o.ManifestText += " " },
		"name":     func(o *transfer.Offer) { o.Parts = []transfer.Part{{Name: "x", Size: o.Parts[0].Size}} },
		"size":     func(o *transfer.Offer) { o.Parts = []transfer.Part{{Name: o.Parts[0].Name, Size: 1}} },
		"more":     func(o *transfer.Offer) { o.Parts = append(o.Parts, transfer.Part{Name: "y"}) },
		"none":     func(o *transfer.Offer) { o.Parts = nil },
	} {
		changed := offer
		change(&changed)
		if changed.Digest() == digest {
			t.Errorf("another %s, and the same hash", name)
		}
	}
}

// A receiver is not taken over with another token while it lives; it may change its own.
func TestTakenOverReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t", Silence: 30 * time.Second})
		say := func(instance, token string, leaving bool) error {
			req := protocol.ReceiverRequest{Engine: "e", Instance: instance, Leaving: leaving}
			req.Caller.Token = token
			_, err := c.Next(t.Context(), "a", req)
			return err
		}
		if err := say("first", "its own", false); err != nil {
			t.Fatal(err)
		}
		for _, leaving := range []bool{false, true} {
			if err := say("second", "another", leaving); err == nil || !strings.Contains(err.Error(), "with another token") || len(c.Versions()) != 1 {
				t.Errorf("another token, leaving %t: %v, %+v", leaving, err, c.Versions())
			}
		}
		for _, next := range [][2]string{{"first", "its new one"}, {"restarted", "its new one"}} {
			if err := say(next[0], next[1], false); err != nil {
				t.Errorf("%v: %v", next, err)
			}
		}
		time.Sleep(31 * time.Second)
		if err := say("second", "another", false); err != nil {
			t.Errorf("after a silence: %v", err)
		}
	})
}

// A parent that sends a byte now and then does not hold a receiver up.
func TestTricklingParent(t *testing.T) {
	dir, parts := publish(t, 100<<10)
	c, err := transfer.OpenCopy(7, "", manifestOf(t, dir, parts), parts, dir)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		source := &transfer.Source{}
		source.Add(c)
		good := source.Handler("/t")
		client := pipeTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Host != "slow" || !strings.HasSuffix(r.URL.Path, "/chunks") {
				good.ServeHTTP(w, r)
				return
			}
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte{0})
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Second)
			}
		}))
		store := &transfer.Store{Dir: to, Client: client}
		began := time.Now()
		p, err := store.Fetch(t.Context(), transfer.Load{Version: 7, Offer: source.Digest(7, ""), Parents: []transfer.Parent{{URL: "http://slow/t"}, {URL: "http://good/t"}}})
		if took := time.Since(began); err != nil || p.Parents != 2 || took > time.Minute {
			t.Errorf("%v after %v and %d parents, want the second to help after 30 s", err, took, p.Parents)
		}
		time.Sleep(time.Minute) // until the slow one has seen that nobody listens
	})
}
