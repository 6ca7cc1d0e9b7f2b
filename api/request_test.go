package api

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// Whatever is wrong with a body is named, and nothing of it is quoted.
func TestBodiesRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {"", "the body is empty"},
		"blank":          {" \n", "the body is empty"},
		"list":           {`["hidden"]`, "no JSON object"},
		"text":           {`"hidden"`, "no JSON object"},
		"null":           {`null`, "no JSON object"},
		"torn":           {`{"worker":"hidden`, "ends in the middle"},
		"syntax":         {`{"worker":hidden}`, "not JSON at byte 11"},
		"NaN":            {`{"reward":NaN}`, "NaN and Infinity are no JSON"},
		"unknown":        {`{"hidden":1}`, "want worker"},
		"near":           {`{"rewrad":1}`, `did you mean "reward"`},
		"kind":           {`{"reward":"hidden"}`, `field "reward"`},
		"kind of number": {`{"tokens":[1.5]}`, "holds a number: want an integer of 32 bits"},
		"single":         {`{"reward":1e300}`, "at most 3.4e38"},
		"range":          {`{"tokens":[4294967296]}`, "holds a number: want an integer of 32 bits"},
		"overflow":       {`{"reward":1e400}`, `field "reward"`},
		"trailing":       {`{"worker":"w"} {"worker":"hidden"}`, "more follows the JSON object at byte 14"},
		"trailing brace": {`{"worker":"w"}}`, "more follows"},
		"deep":           {`{"worker":` + strings.Repeat("[", 1_000_000), "nested 1000001 levels deep"},
		"again":          {`{"reward":1,"worker":"hidden","reward":2}`, `field "reward" is there again at byte 30: want every field once`},
		"again, escaped": {`{"reward":1,"re\u0077ard":2}`, `field "reward" is there again at byte 12`},
		"case":           {`{"worker":"hidden","Reward":2}`, `unknown field "Reward" at byte 19: it is written "reward"`},
		"case as well":   {`{"reward":1,"REWARD":2}`, `unknown field "REWARD" at byte 12: it is written "reward"`},
		"base64":         {`{"worker":"hidden","loss_mask":"AQE="}`, `field "loss_mask" at byte 31 holds a text: want a list of numbers`},
		"not UTF-8":      {"{\"\xff\":1}", "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			var message protocol.FinishRequest
			err := decodeJSON([]byte(c.text), &message)
			refusal := refusalOf(err)
			if err == nil || refusal.Code != protocol.CodeInvalid || !strings.Contains(refusal.Message, c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if strings.Contains(refusal.Message, "hidden") && name != "unknown" {
				t.Errorf("the message quotes the body: %s", refusal.Message)
			}
		})
	}
	var message protocol.FinishRequest
	if err := decodeJSON([]byte("\r\n {\"worker\":\"w]}\\\"[[{\",\"tokens\":[1,2]} \n"), &message); err != nil || len(message.Tokens) != 2 {
		t.Errorf("a good body: %v", err)
	}
	if text, err := json.Marshal(protocol.FinishRequest{LossMask: []uint8{0, 1, 1}}); err != nil || !strings.Contains(string(text), `"loss_mask":[0,1,1]`) || decodeJSON(text, &message) != nil || !slices.Equal(message.LossMask, []uint8{0, 1, 1}) {
		t.Errorf("a loss mask: %s, %v, %v", text, err, message.LossMask)
	}
	var step protocol.PublishRequest // keys of metrics are the trainer's own, and differ by case
	if err := decodeJSON([]byte(`{"metrics":{"A":1,"a":2}}`), &step); err != nil || len(step.Metrics) != 2 {
		t.Errorf("metrics: %v", err)
	}
	if err := decodeJSON([]byte(`{"metrics":{"A":1,"A":2}}`), &step); err == nil || !strings.Contains(err.Error(), "again at byte 18") {
		t.Errorf("a metric that is there twice: %v", err)
	}
	if err := decodeJSON([]byte(`{"files":[{"name":"a"},{"Name":"x"}]}`), &step); err == nil || !strings.Contains(err.Error(), `it is written "name"`) {
		t.Errorf("a nested field of another case: %v", err)
	}
	var wait protocol.ClaimRequest
	if err := decodeJSON([]byte(`{"wait_s":1e999}`), &wait); err == nil || !strings.Contains(err.Error(), "holds a number that is too large") {
		t.Errorf("a number beyond double precision: %v", err)
	}
	var nested protocol.PublishRequest
	if err := decodeJSON([]byte(`{"files":[{"nam":"x"}]}`), &nested); err == nil || !strings.Contains(err.Error(), `did you mean "name"`) {
		t.Errorf("a nested field: %v", err)
	}
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add([]byte(`{"worker":"w","tokens":[1]}`))
	f.Add([]byte(`{"a":[[{"b":null}]]}{`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var message protocol.FinishRequest
		if err := decodeJSON(text, &message); err != nil && refusalOf(err).Code != protocol.CodeInvalid {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func TestWaits(t *testing.T) {
	for seconds, fine := range map[float64]bool{0: true, 0.5: true, 60: true, 60.1: false, -1: false, math.Inf(1): false, math.NaN(): false} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		if err := readWaiting(r, &protocol.ClaimRequest{}, &seconds); (err == nil) != fine {
			t.Errorf("%v: %v", seconds, err)
		}
	}
}

// A null in a list is no 0, wherever it stands; one that is a field's value leaves the field out.
func TestNullInLists(t *testing.T) {
	for text, bad := range map[string]bool{
		`{"worker":"w","prompt":[0,null,1],"max_tokens":1}`:        true,
		`{"worker":"w","prompt":[null]}`:                           true,
		`{"worker":"w","prompt":[0, 1 , null ]}`:                   true,
		`{"worker":"w","prompt":null,"max_tokens":null}`:           false,
		`{"worker":"[null,\"null\\","prompt":[1]}`:                 false,
		`{"worker":"null","prompt":[1],"turn":null}`:               false,
		` {"prompt" : [ 1 ], "worker" : null , "max_tokens" : 2} `: false,
	} {
		var message protocol.SampleRequest
		err := decodeJSON([]byte(text), &message)
		if (err != nil) != bad || bad && !strings.Contains(err.Error(), "a list has null at byte") {
			t.Errorf("%s: %v", text, err)
		}
	}
	var finish protocol.FinishRequest
	if err := decodeJSON([]byte(`{"worker":"w","reward":1,"tokens":[1],"logprobs":[null]}`), &finish); err == nil {
		t.Errorf("a log-prob of null is taken as %v", finish.Logprobs)
	}
}
