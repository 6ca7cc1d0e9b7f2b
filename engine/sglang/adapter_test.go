package sglang

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
)

// loras is a server with adapters, in the words and with the order of SGLang 0.5.23 (lora_registry.py,
// tokenizer_control_mixin.py, http_server.py). An unload takes the name off the list, waits until no request uses
// the adapter, and holds the lock of loads until then. A paused request never ends. A name that was loaded once is
// loaded again for a request. The weights of an adapter are the first byte of its file.
type loras struct {
	t       *testing.T
	updates sync.Mutex // of loads and unloads
	mu      sync.Mutex
	changed *sync.Cond
	paused  bool
	label   string
	max     int // --max-loaded-loras
	loaded  []lora
	known   map[string]string // every name that was ever loaded, with its path
	users   map[string]int
	aborted []string
	asked   []string
	ever    int
}

type lora struct{ name, path string }

func newLoras(t *testing.T) *loras {
	l := &loras{t: t, label: "default", max: 1, known: map[string]string{}, users: map[string]int{}}
	l.changed = sync.NewCond(&l.mu)
	return l
}

func (l *loras) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name    string  `json:"lora_name"`
		Path    string  `json:"lora_path"`
		Rid     string  `json:"rid"`
		Stream  bool    `json:"stream"`
		Input   []int32 `json:"input_ids"`
		Version string  `json:"new_version"`
		Abort   *bool   `json:"abort_all_requests"`
		Start   int     `json:"logprob_start_len"`
		Params  struct {
			Max int `json:"max_new_tokens"`
		} `json:"sampling_params"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	l.mu.Lock()
	l.asked = append(l.asked, r.URL.Path+" "+body.Name)
	l.mu.Unlock()
	switch r.URL.Path {
	case "/openapi.json":
		_, _ = fmt.Fprintf(w, `{"paths":{"/generate":{},"/pause_generation":{},"/continue_generation":{},%q:{},%q:{},%q:{}}}`, pathLoad, pathUnload, pathLabel)
	case "/health":
	case "/model_info":
		l.mu.Lock()
		_, _ = fmt.Fprintf(w, `{"model_path":"m","weight_version":%q}`, l.label)
		l.mu.Unlock()
	case "/server_info":
		_, _ = fmt.Fprint(w, `{"version":"0.5.23","vocab_size":64,"enable_lora":true,"dp_size":1,"tp_size":1}`)
	case "/v1/models":
		l.list(w)
	case "/pause_generation", "/continue_generation":
		l.set(func() { l.paused = r.URL.Path == "/pause_generation" })
	case "/abort_request":
		l.set(func() { l.aborted = append(l.aborted, body.Rid) })
	case pathLabel:
		if body.Abort == nil || *body.Abort {
			l.t.Error("a new label is to abort nothing, and that is its default")
		}
		l.set(func() { l.label = body.Version })
		_, _ = fmt.Fprint(w, `{"success":true}`)
	case pathLoad:
		l.answer(w, l.load(body.Name, body.Path))
	case pathUnload:
		l.updates.Lock()
		l.answer(w, l.unload(body.Name))
		l.updates.Unlock()
	case "/generate":
		l.generate(w, r.Context(), body.Rid, body.Path, body.Input, body.Params.Max, body.Start, body.Stream)
	default:
		http.NotFound(w, r)
	}
}

func (l *loras) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.changed.Broadcast()
}

func (l *loras) list(w http.ResponseWriter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := `{"id":"m","max_model_len":256}`
	for _, a := range l.loaded {
		all += fmt.Sprintf(`,{"id":%q,"root":%q,"parent":"m"}`, a.name, a.path)
	}
	_, _ = fmt.Fprintf(w, `{"data":[%s]}`, all)
}

func (l *loras) answer(w http.ResponseWriter, problem string) {
	if problem != "" {
		w.WriteHeader(http.StatusBadRequest)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"success": problem == "", "error_message": problem})
}

func (l *loras) load(name, path string) string {
	l.updates.Lock()
	defer l.updates.Unlock()
	if text, err := os.ReadFile(filepath.Join(path, "adapter_config.json")); err != nil || !strings.Contains(string(text), `"r"`) {
		return "no readable adapter at " + path
	}
	l.mu.Lock()
	at := slices.IndexFunc(l.loaded, func(a lora) bool { return a.name == name })
	if at < 0 {
		l.loaded, l.known[name] = append(l.loaded, lora{name, path}), path
		l.ever++
	}
	oldest, over := l.loaded[0].name, len(l.loaded) > l.max
	l.mu.Unlock()
	if at >= 0 {
		return "LoRA with name " + name + " already exists. Loaded LoRAs: odict_keys([])"
	}
	if over {
		return l.unload(oldest)
	}
	return ""
}

// unload is called with the lock of updates.
func (l *loras) unload(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.loaded, func(a lora) bool { return a.name == name })
	if at < 0 {
		return "LoRA with name " + name + " does not exist. Loaded LoRAs: odict_keys([])"
	}
	l.loaded = slices.Delete(l.loaded, at, at+1)
	for l.users[name] > 0 {
		if l.paused {
			l.t.Error("an unload waits for requests that stand still")
			return "stuck"
		}
		l.changed.Wait()
	}
	return ""
}

// weights are those of an adapter, 0 of the model alone; false for one that was never loaded.
func (l *loras) weights(name string) (byte, string) {
	if name == "" {
		return 0, ""
	}
	l.mu.Lock()
	path, known := l.known[name]
	loaded := slices.ContainsFunc(l.loaded, func(a lora) bool { return a.name == name })
	l.mu.Unlock()
	if !known {
		return 0, "Got LoRA adapter that has never been loaded: " + name + "\nAll loaded adapters: dict_keys([])."
	}
	if !loaded {
		if problem := l.load(name, path); problem != "" {
			return 0, problem
		}
	}
	text, err := os.ReadFile(filepath.Join(path, "adapter_model.safetensors"))
	if err != nil {
		return 0, err.Error()
	}
	return text[len(text)-1], ""
}

// said is the log-prob of a token under an adapter's weights.
func said(weights byte, token int32) float64 { return -0.1*float64(weights) - 0.01*float64(token) }

func (l *loras) generate(w http.ResponseWriter, ctx context.Context, rid, adapter string, input []int32, most, start int, stream bool) {
	weights, problem := l.weights(adapter)
	l.mu.Lock()
	label := l.label
	l.users[adapter]++
	l.mu.Unlock()
	defer l.set(func() { l.users[adapter]-- })
	if problem != "" && stream {
		text, _ := json.Marshal(map[string]any{"error": map[string]any{"message": problem, "type": "invalid_request_error", "code": 400, "retryable": false}})
		_, _ = fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", text)
		return
	} else if problem != "" {
		http.Error(w, problem, http.StatusBadRequest)
		return
	}
	var in, out []any
	for i, token := range input {
		if i == 0 {
			in = append(in, []any{nil, token, nil})
		} else {
			in = append(in, []any{said(weights, token), token, nil})
		}
	}
	meta := map[string]any{"id": rid, "output_token_logprobs": []any{}, "completion_tokens": 0}
	if start >= 0 {
		meta["input_token_logprobs"] = in
	}
	stop := context.AfterFunc(ctx, func() { l.set(func() {}) })
	defer stop()
	finish := "length"
	for n := range most {
		if n == 2 && stream && most > 4 && !l.await(ctx, rid, len(input)) { // it stands until something happens
			finish = "abort"
			break
		}
		token := int32(8 + (len(input)+n)%32)
		out = append(out, []any{said(weights, token), token, nil})
		meta["output_token_logprobs"], meta["completion_tokens"] = out, n+1
		if stream && n < most-1 {
			l.event(w, meta, nil)
		}
	}
	meta["weight_versions"] = []any{map[string]any{"version": label, "start": 0, "end": len(out)}}
	reason := map[string]any{"type": finish, "length": most}
	if stream {
		l.event(w, meta, reason)
		_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
		return
	}
	meta["finish_reason"] = reason
	ids := []int32{}
	for _, one := range out {
		ids = append(ids, one.([]any)[1].(int32))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"text": "", "output_ids": ids, "meta_info": meta})
}

// await holds a first request back until it is aborted; one that goes on with a response runs to its end.
func (l *loras) await(ctx context.Context, rid string, input int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for input == len(adapterPrompt) && l.hold() {
		if ctx.Err() != nil || slices.Contains(l.aborted, rid) {
			return false
		}
		l.changed.Wait()
	}
	return true
}

// hold reports whether responses stand: while an adapter is switched under them, and not at the suite's end.
func (l *loras) hold() bool { return l.ever <= adapterHolds }

// adapterHolds is how many loads there are while responses stand: the leftover, version 0 and six switches.
const adapterHolds = 7

func (l *loras) event(w http.ResponseWriter, meta map[string]any, reason any) {
	meta["finish_reason"] = reason
	text, _ := json.Marshal(map[string]any{"text": "", "output_ids": []int32{}, "meta_info": meta})
	_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
	_ = http.NewResponseController(w).Flush()
}

// adapterPrompt begins the responses of the suite.
var adapterPrompt = []int32{3, 20, 21, 4}

// writeAdapter makes an adapter in the layout of peft whose last byte is its weights.
func writeAdapter(t *testing.T, weights byte) string {
	t.Helper()
	dir := t.TempDir()
	header := []byte(`{"base_model.model.q_proj.lora_A.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), append(header, weights)...)
	for name, content := range map[string][]byte{"adapter_model.safetensors": file, "adapter_config.json": []byte(`{"peft_type":"LORA","r":4}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestAdapters switches adapters under responses of a server in SGLang's words.
func TestAdapters(t *testing.T) {
	for _, most := range []int{1, 4} {
		t.Run(fmt.Sprintf("max-loaded-loras_%d", most), func(t *testing.T) {
			l := newLoras(t)
			l.max = most
			front := httptest.NewServer(l)
			t.Cleanup(front.Close)
			enginetest.RunAdapters(t, enginetest.AdapterSubject{
				URL: front.URL, Dialect: func() upstream.Dialect { return New() }, Dirs: []string{writeAdapter(t, 1), writeAdapter(t, 2), writeAdapter(t, 3)},
				Remove: func(_ context.Context, _ *upstream.Server, adapter string) error {
					l.set(func() {
						l.loaded = slices.DeleteFunc(l.loaded, func(a lora) bool { return a.name == adapter })
						delete(l.known, adapter)
					})
					return nil
				},
				Prompt: adapterPrompt, MaxTokens: 12, Vocabulary: 64, Within: 1e-4,
			})
		})
	}
}
