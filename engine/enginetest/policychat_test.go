package enginetest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// What a policy has said reads as the tokens that it sampled, and a chat that goes on begins as it did before.
func TestPolicyServerChat(t *testing.T) {
	s := NewPolicyServer(PolicyOptions{Policy: testPolicy, Context: 128, Weights: "v0", Chat: true})
	defer s.Close()
	for _, tokens := range [][]int32{nil, {7}, {63, 0, 1, 2}} {
		if got := testPolicy.read(testPolicy.Spell(tokens...)); !slices.Equal(got, tokens) {
			t.Errorf("%v reads as %v", tokens, got)
		}
	}
	for body, want := range map[string]string{
		`{"prompt":"<7><64"}`: `"tokens":[7,`,
		`{"messages":[{"role":"user","content":"<7>"}],"add_generation_prompt":true}`:                                         `"tokens":[1,7,4,2]`,
		`{"messages":[{"role":"user","content":"<7>"},{"role":"assistant","content":"<9>"},{"role":"user","content":"<8>"}]}`: `"tokens":[1,7,4,2,9,4,1,8,4]`,
		`[`: "not understood",
	} {
		if _, text := post(t, s.URL()+"/tokenize", body); !strings.Contains(text, want) {
			t.Errorf("%s is answered %s, want %s", body, text, want)
		}
	}
	if _, text := post(t, s.URL()+"/v1/completions/derender", `{"generate_responses":[{"choices":[{"token_ids":[7,9,4]}]}]}`); !strings.Contains(text, `"text":"\u003c7\u003e\u003c9\u003e"`) {
		t.Errorf("derendered: %s", text)
	}
}

// An abort of all ends every response with its reason and the mark of the end. A deaf server says that it has taken weights.
func TestPolicyServerLies(t *testing.T) {
	deaf, answered := true, make(chan string, 1)
	s := NewPolicyServer(PolicyOptions{Policy: Policy{Vocabulary: 64, EOS: 4, Length: 1 << 40}, Context: 1 << 20, Weights: "v0", Step: time.Millisecond,
		Deaf: func() bool { return deaf }, Answered: func(id string) { answered <- id }})
	defer s.Close()
	res := long(t, s)
	defer res.Body.Close()
	if _, err := res.Body.Read(make([]byte, 1)); err != nil { // it is under way
		t.Fatal(err)
	}
	s.AbortAll()
	if text, _ := io.ReadAll(res.Body); !bytes.Contains(text, []byte(`"abort"`)) || !bytes.HasSuffix(text, []byte("data: [DONE]\n\n")) {
		t.Errorf("aborted: %.300s", text)
	}
	short := NewPolicyServer(PolicyOptions{Policy: Policy{Vocabulary: 64, EOS: 4, Length: 2}, Context: 1 << 20, Weights: "v0",
		Answered: func(id string) { answered <- id + " in full" }})
	defer short.Close()
	whole := long(t, short)
	defer whole.Body.Close()
	if _, err := io.ReadAll(whole.Body); err != nil {
		t.Fatal(err)
	}
	if id := <-answered; id != "cmpl-long-0 in full" {
		t.Errorf("answered %q, want the response that was not aborted", id)
	}
	for _, want := range []string{"v0", "v1"} {
		status, _ := post(t, s.URL()+"/collective_rpc", `{"method":"reload_weights","kwargs":{"weights_path":"/somewhere/v1"}}`)
		if got := s.weightsName(); status != http.StatusOK || got != want {
			t.Errorf("deaf is %t: answered %d, and serves %s, want %s", deaf, status, got, want)
		}
		deaf = false
	}
	if fmt.Sprint(s.Updates()) != "[v1]" {
		t.Errorf("updates %v", s.Updates())
	}
}
