package scorer

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// recorded is a question to vLLM 0.32.0 on a CPU, with a tiny Llama of 64 ids and a context of 256, and its answer.
type recorded struct {
	Body   map[string]any `json:"body"`
	Status int            `json:"status"`
	Answer string         `json:"answer"`
}

func recordings(t *testing.T) map[string]recorded {
	t.Helper()
	text, err := os.ReadFile("testdata/vllm-0.32.0.json")
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]recorded
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The questions are those that vLLM was asked, and its answers are read as encoding/json reads them.
func TestRecordedAnswers(t *testing.T) {
	tokens := []int32{5, 9, 17, 3, 22, 8}
	for name, top := range map[string]int{"top3": 3, "top0": 0} {
		r := recordings(t)[name]
		q, _ := ask(tokens, []uint8{0, 0, 1, 0, 1, 1}, top, 64)
		var asked map[string]any
		if err := json.Unmarshal(vllm{}.call(q, "").Body, &asked); err != nil || !reflect.DeepEqual(asked, r.Body) {
			t.Errorf("%s: %v is asked, %v was: %v", name, asked, r.Body, err)
		}
		a := newAnswer(q)
		if err := (vllm{}).read([]byte(r.Answer), q, &a); err != nil || r.Status != 200 {
			t.Fatal(name, r.Status, err)
		}
		if err := a.check(q); err != nil {
			t.Fatal(name, err)
		}
		var plain struct {
			Choices []struct {
				Rows []map[string]struct {
					Logprob float32 `json:"logprob"`
					Rank    int     `json:"rank"`
				} `json:"prompt_logprobs"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(r.Answer), &plain); err != nil {
			t.Fatal(err)
		}
		for row := range q.rows() {
			said := plain.Choices[0].Rows[q.from+row]
			token := strconv.Itoa(int(tokens[q.from+row]))
			if said[token].Logprob == 0 || a.own[row] != said[token].Logprob {
				t.Errorf("%s: token %s has %g, vLLM says %g", name, token, a.own[row], said[token].Logprob)
			}
			for k := range top {
				id, x := strconv.Itoa(int(a.ids[row*top+k])), a.top[row*top+k]
				if said[id].Logprob != x || id != token && said[id].Rank != k+1 {
					t.Errorf("%s: likely token %d at %d is %s with %g, vLLM says %+v", name, k, q.from+row, id, x, said[id])
				}
			}
		}
	}
}

// The fake answers in the keys of the real one.
func TestFakeSpeaksAsRecorded(t *testing.T) {
	var real, fake map[string]any
	if err := json.Unmarshal([]byte(recordings(t)["top3"].Answer), &real); err != nil {
		t.Fatal(err)
	}
	q, _ := ask([]int32{5, 9, 17}, []uint8{0, 0, 1}, 3, 20)
	s := &server{kind: "vllm", model: model{"x", 20}}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/completions", strings.NewReader(string(vllm{}.call(q, "").Body))))
	if err := json.Unmarshal(w.Body.Bytes(), &fake); err != nil {
		t.Fatal(err)
	}
	entry := func(a map[string]any) map[string]any {
		row := at(a, "choices", 0, "prompt_logprobs", 2).(map[string]any)
		return row[slices.Sorted(maps.Keys(row))[0]].(map[string]any)
	}
	for _, pair := range [][2]map[string]any{{real, fake}, {at(real, "choices", 0).(map[string]any), at(fake, "choices", 0).(map[string]any)}, {entry(real), entry(fake)}} {
		for key := range pair[1] {
			if _, is := pair[0][key]; !is {
				t.Errorf("the fake says %q, and vLLM does not", key)
			}
		}
	}
	if at(real, "choices", 0, "prompt_logprobs", 0) != nil {
		t.Error("vLLM says something of the first token")
	}
}

// What vLLM refuses is said with what to do about it.
func TestRecordedRefusals(t *testing.T) {
	for name, want := range map[string]string{"top30": "--max-logprobs 30", "vocabulary": "out of vocabulary", "long": "--max-model-len of one token more"} {
		r := recordings(t)[name]
		err := advised(&upstream.StatusError{Path: "/v1/completions", Status: r.Status, Message: r.Answer}, 30)
		if r.Status != 400 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
