package enginetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stream answers every request that samples with three events in the form of vLLM, and the end mark.
func stream(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			_, _ = io.WriteString(w, "{}")
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i := range 3 {
			finish := "null"
			if i == 2 {
				finish = `"stop"`
			}
			fmt.Fprintf(w, `data: {"choices":[{"text":"a","token_ids":[%d],"logprobs":{"token_logprobs":[-0.5],"tokens":["a"]},"finish_reason":%s}]}`+"\n\n", i+7, finish)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// events reads the data of a stream's events, and what it ended with.
func events(body io.Reader) (data []string, err error) {
	err = eachPiece(body, true, func(piece []byte) error {
		if text, ok := EventData(piece); ok && bytes.HasSuffix(piece, []byte("\n\n")) {
			data = append(data, string(text))
		} else {
			data = append(data, "cut: "+string(piece))
		}
		return nil
	})
	return data, err
}

func ask(t *testing.T, url string) (*http.Response, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":[1,2],"request_id":"one-two"}`))
	if err == nil {
		t.Cleanup(func() { res.Body.Close() })
	}
	return res, err
}

func TestProxyPasses(t *testing.T) {
	p := NewFaultProxy(stream(t), nil)
	defer p.Close()
	res, err := ask(t, p.URL())
	if err != nil {
		t.Fatal(err)
	}
	data, err := events(res.Body)
	if err != nil || len(data) != 4 || data[3] != "[DONE]" || !strings.Contains(data[1], "[8]") || len(p.Done()) != 0 {
		t.Errorf("passed on: %q, %v, faults %v", data, err, p.Done())
	}
}

// Every fault is what its name says, after the events that pass before it.
func TestFaults(t *testing.T) {
	const after = 1
	tests := []struct {
		kind FaultKind
		// events that come whole, whether the stream ends regularly, and a part of the last or of the second one.
		events  int
		regular bool
		holds   string
	}{
		{Kill, 1, false, ""}, {Reset, 1, false, ""}, {Truncate, 1, false, ""}, {Short, 1, true, ""},
		{Drip, 4, true, "[DONE]"},
		{Error, 3, true, "[DONE]"}, {Garbage, 4, true, "nonsense"},
		{Unmarked, 3, true, `"stop"`}, {Unfinished, 4, true, `"finish_reason":null`}, {Refinished, 5, true, "[DONE]"},
		{WrongIDs, 4, true, "1073741824"}, {FewIDs, 4, true, `"token_ids":[]`}, {NoLogprobs, 4, true, `"logprobs":null`},
		{Missing, 4, true, "-9999"}, {Positive, 4, true, "[0.5]"},
	}
	for _, test := range tests {
		t.Run(string(test.kind), func(t *testing.T) {
			p := NewFaultProxy(stream(t), Script(Fault{Kind: test.kind, After: after, Wait: time.Microsecond}))
			defer p.Close()
			res, err := ask(t, p.URL())
			if err != nil {
				t.Fatal(err)
			}
			data, err := events(res.Body)
			whole := len(data)
			if whole > 0 && strings.HasPrefix(data[whole-1], "cut: ") {
				whole--
			}
			// A connection that is reset may lose what was under way.
			if whole != test.events && !(test.kind == Reset && whole < test.events) || (err == nil) != test.regular {
				t.Fatalf("%d whole events, want %d; ended with %v, regular %v: %q", whole, test.events, err, test.regular, data)
			}
			if test.holds != "" && !strings.Contains(strings.Join(data[after:], "\n"), test.holds) {
				t.Errorf("%q is not in %q", test.holds, data)
			}
			if test.kind != Reset && strings.Contains(data[0], "1073741824") {
				t.Errorf("the event before the fault was changed: %q", data[0])
			}
			if test.kind == Reset && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("ended with %v, want a reset", err)
			}
			if done := p.Done(); len(done) != 1 || done[0].Kind != test.kind {
				t.Errorf("faults %v", done)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	p := NewFaultProxy(stream(t), Script(Fault{Kind: Broken}, Fault{Kind: Busy, Wait: 3 * time.Second}))
	defer p.Close()
	for _, want := range []struct {
		status int
		retry  string
	}{{500, ""}, {503, "3"}, {200, ""}} {
		res, err := ask(t, p.URL())
		if err != nil || res.StatusCode != want.status || res.Header.Get("Retry-After") != want.retry {
			t.Errorf("answered %+v, %v: want %+v", res, err, want)
		}
	}
}

// What hangs ends with its client or with the proxy.
func TestHang(t *testing.T) {
	for _, kind := range []FaultKind{Hang, Mute} {
		p := NewFaultProxy(stream(t), Script(Fault{Kind: kind, After: 2}))
		ended := make(chan error, 1)
		first := make(chan struct{})
		go func() {
			res, err := ask(t, p.URL())
			if err == nil {
				lines := bufio.NewReader(res.Body)
				for range 4 {
					_, _ = lines.ReadString('\n')
				}
				close(first)
				_, err = lines.ReadString('\n')
			}
			ended <- err
		}()
		if kind == Hang {
			<-first
		}
		p.Close()
		if err := <-ended; err == nil {
			t.Errorf("%s: the answer went on", kind)
		}
	}
}

func TestDown(t *testing.T) {
	p := NewFaultProxy(stream(t), nil)
	defer p.Close()
	p.SetDown(true)
	if res, err := ask(t, p.URL()); err == nil {
		t.Errorf("answered with %d while down", res.StatusCode)
	}
	p.SetDown(false)
	if _, err := ask(t, p.URL()); err != nil {
		t.Errorf("up again: %v", err)
	}
}

// A seeded plan is a function of its seed, and has as many faults as it was told.
func TestSeeded(t *testing.T) {
	draw := func(seed uint64) (faults []Fault) {
		plan := Seeded(seed, 0.5, 20, 6, FaultKinds...)
		r := httptest.NewRequest(http.MethodPost, "/generate", nil)
		for range 1000 {
			if f := plan(r); f.Kind != "" {
				faults = append(faults, f)
			}
		}
		return faults
	}
	one, again, other := fmt.Sprint(draw(1)), fmt.Sprint(draw(1)), fmt.Sprint(draw(2))
	if one != again || one == other || len(draw(1)) != 20 {
		t.Errorf("drawn\n%s\n%s\n%s", one, again, other)
	}
	if f := Seeded(1, 1, 20, 6, FaultKinds...)(httptest.NewRequest(http.MethodPost, "/pause", nil)); f.Kind != "" {
		t.Errorf("a pause fails with %v", f)
	}
}

// The lies are told in every form that servers have.
func TestCorrupt(t *testing.T) {
	forms := map[string]string{
		"sglang":    `{"text":"a","output_ids":[3,4],"meta_info":{"finish_reason":{"type":"stop"},"output_token_logprobs":[[-0.5,3,null],[-0.25,4,null]]}}`,
		"llamacpp":  `{"content":"a","tokens":[3,4],"stop":true,"stop_type":"eos","completion_probabilities":[{"id":3,"logprob":-0.5},{"id":4,"logprob":-0.25}]}`,
		"generate":  `{"choices":[{"token_ids":[3,4],"finish_reason":"stop","logprobs":{"content":[{"token_id":3,"logprob":-0.5},{"token_id":4,"logprob":-0.25}]}}]}`,
		"completed": `{"choices":[{"token_ids":[3,4],"finish_reason":"stop","logprobs":{"token_logprobs":[-0.5,-0.25]}}]}`,
	}
	for name, form := range forms {
		event := []byte("data: " + form + "\n\n")
		if !finishes(event) || finishes(corrupt(event, Unfinished)) {
			t.Errorf("%s: finish not seen, or left there: %s", name, corrupt(event, Unfinished))
		}
		for kind, want := range map[FaultKind]int{Missing: 2, Positive: 2} {
			number := map[FaultKind]string{Missing: "-9999", Positive: "0.5"}[kind]
			got := corrupt(event, kind)
			if n := bytes.Count(got, []byte(number)); n != want {
				t.Errorf("%s: %s stands %d times in %s, want %d", name, number, n, got, want)
			}
		}
		for _, kind := range []FaultKind{WrongIDs, FewIDs, NoLogprobs, Unfinished} {
			got := corrupt(event, kind)
			data, _ := EventData(got)
			if bytes.Equal(got, event) || !json.Valid(data) {
				t.Errorf("%s: %s makes %s", name, kind, got)
			}
		}
	}
}
