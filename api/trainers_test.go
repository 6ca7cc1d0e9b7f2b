package api_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/batch/batchtest"
	trainer "github.com/headway-rl/headway/train/remote"
)

var (
	_ api.Trainers = (*trainer.Trainer)(nil)
	_ api.Versions = trainer.Versions{}
)

// served is a plane of which one engine serves a version.
type served struct {
	readyPlane
	engines []protocol.EngineVersion
}

func (s *served) Engines() []protocol.EngineVersion { return s.engines }

func (*served) Status() protocol.Status { return protocol.Status{} }

// school is a server over a trainer and a store of weights, both real.
type school struct {
	t       testing.TB
	trainer *trainer.Trainer
	store   *weights.Store
	plane   *served
	shared  string
	url     string
}

func newSchool(t testing.TB, options api.Options) *school {
	t.Helper()
	return newSchoolOf(t, options, 2)
}

// newSchoolOf has a model of so many values.
func newSchoolOf(t testing.TB, options api.Options, values int) *school {
	t.Helper()
	s := &school{t: t, plane: &served{}, shared: t.TempDir()}
	var err error
	s.store, err = weights.Open(t.TempDir(), weights.Options{Directories: []string{s.shared}})
	s.must(err)
	began := time.Now()
	s.trainer, err = trainer.New(trainer.Options{Weights: s.store, Clock: func() int64 { return int64(time.Since(began)) }, Vocabulary: 50_000,
		Initial: func(ctx context.Context) error {
			return s.store.Publish(ctx, port.Publication{Version: 0, Model: []port.Tensor{{Name: "w", Shape: []int{values}, Data: make([]float32, values)}}})
		}})
	s.must(err)
	s.must(s.trainer.Initialize(t.Context()))
	server, err := api.New(options, api.Ports{Plane: s.plane, Trainers: s.trainer, Versions: trainer.Versions{Store: s.store}})
	s.must(err)
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(listener.Close)
	t.Cleanup(func() { _ = s.trainer.Close() })
	s.url = listener.URL + "/api/v1/"
	return s
}

func (s *school) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// call sends a body and returns the status and the reply.
func (s *school) call(method, path, kind string, body io.Reader, headers ...string) (int, []byte, http.Header) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	s.must(err)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	reply, err := http.DefaultClient.Do(req)
	s.must(err)
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	s.must(err)
	return reply.StatusCode, text, reply.Header
}

func (s *school) post(path, body string) (int, string) {
	s.t.Helper()
	status, text, _ := s.call(http.MethodPost, path, "application/json", strings.NewReader(body))
	return status, string(text)
}

// refuses fails unless a post is refused with that status and these words.
func (s *school) refuses(path, body string, status int, words string) {
	s.t.Helper()
	got, text := s.post(path, body)
	if got != status || !strings.Contains(text, words) {
		s.t.Errorf("%s %s: %d %s, want %d with %q", path, body, got, text, status, words)
	}
}

// offer has Train offer a batch of so many groups.
func (s *school) offer(lease loop.LeaseID, version loop.Version, n int) <-chan error {
	out := make(chan error, 1)
	go func() {
		_, err := s.trainer.Train(s.t.Context(), lesson(lease, version, n, 3))
		out <- err
	}()
	return out
}

// lesson is a batch of n groups of 8 rollouts of so many tokens.
func lesson(lease loop.LeaseID, version loop.Version, n, tokens int) port.Batch {
	b := port.Batch{Lease: lease, Attempt: 1, Version: version}
	for g := range n {
		group := port.Group{ID: loop.GroupID(g + 1), StartVersion: version, ReadyVersion: version, Rollouts: 8}
		for i := range 8 {
			s := port.Sample{ID: port.RolloutID{Group: group.ID, Sample: int32(i), Attempt: 1}, Reward: float32(i % 2),
				Tokens: make([]int32, tokens), LossMask: make([]uint8, tokens), Logprobs: make([]float32, tokens), Versions: make([]loop.Version, tokens)}
			for k := range tokens {
				s.Tokens[k], s.Versions[k] = int32(k), loop.NoVersion
				if k > 0 {
					s.LossMask[k], s.Logprobs[k], s.Versions[k] = 1, -1, version
				}
			}
			group.Samples = append(group.Samples, s)
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// safetensors is a file with the tensor w.
func safetensors(values []byte) []byte {
	raw, err := weights.AppendHeader(nil, []weights.Entry{{Name: "w", DType: weights.F32, Shape: []int{len(values) / 4}}})
	if err != nil {
		panic(err)
	}
	return append(raw, values...)
}

// form writes a publish as a client would.
func form(t testing.TB, manifest string, parts ...string) (kind string, body *bytes.Buffer) {
	t.Helper()
	body = new(bytes.Buffer)
	w := multipart.NewWriter(body)
	for i, part := range append([]string{"manifest", manifest}, parts...) {
		if i%2 == 1 {
			continue
		}
		field, err := w.CreateFormFile(part, part)
		if err != nil {
			t.Fatal(err)
		}
		content := append([]string{"manifest", manifest}, parts...)[i+1]
		if _, err := io.WriteString(field, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), body
}

// A whole step over HTTP, by hand.
func TestTrainerPaths(t *testing.T) {
	s := newSchool(t, api.Options{})
	status, text := s.post("trainers/connect", `{"trainer":"a"}`)
	var hello protocol.ConnectReply
	s.must(json.Unmarshal([]byte(text), &hello))
	if status != 200 || hello.Action != protocol.ActionLoad || hello.Version != 0 || hello.Load != 0 {
		t.Fatalf("connect: %d %s", status, text)
	}
	if status, text := s.post("batches/lease", `{"trainer":"a"}`); status != 204 || text != "" {
		t.Fatalf("lease of nothing: %d %s", status, text)
	}
	out := s.offer(5, 0, 4)
	status, raw, header := s.call(http.MethodPost, "batches/lease", "application/json", strings.NewReader(`{"trainer":"a","wait_s":60}`))
	if status != 200 || header.Get("Content-Type") != "application/octet-stream" || header.Get("Content-Length") != fmt.Sprint(len(raw)) {
		t.Fatalf("lease: %d %v", status, header)
	}
	tensors, err := batchtest.Decode(raw)
	s.must(err)
	if tensors.Lease.Lease != 5 || tensors.Rollouts() != 32 {
		t.Fatalf("lease %+v", tensors.Lease)
	}
	for range 2 { // one that is sent again renews the lease again, and no reply of before is its answer
		status, text, header := s.call(http.MethodPost, "batches/5/renew", "application/json", strings.NewReader(`{"trainer":"a","attempt":1}`), "Idempotency-Key", "renewed")
		if status != 200 || string(text) != `{"deadline_s":60}`+"\n" || header.Get("Idempotency-Replayed") != "" {
			t.Fatalf("renew: %d %s %v", status, text, header)
		}
	}
	if status, text := s.post("batches/5/renew", `{"trainer":"a","attempt":1}`); status != 200 {
		t.Fatalf("renew: %d %s", status, text)
	}
	s.refuses("batches/5/renew", `{"trainer":"a","attemt":1}`, 400, `did you mean \"attempt\"`)
	s.refuses("batches/six/renew", `{"trainer":"a","attempt":1}`, 400, "lease in the path")
	s.refuses("batches/6/ack", `{"trainer":"a","attempt":1}`, 410, "lease 6")
	s.refuses("batches/5/ack", `{"trainer":"a","attempt":1,"metrics":{"loss":NaN}}`, 400, "finite")
	s.refuses("batches/5/ack", `{"trainer":"a","attempt":1}`, 409, "publish it")
	s.refuses("batches/lease", `{"trainer":"a","wait_s":61}`, 400, "wait_s")
	s.refuses("trainers/connect", `{"trainer":"b"}`, 409, "trainer a has this run")

	content := string(safetensors([]byte("abcdefgh")))
	kind, body := form(t, `{"trainer":"a","lease":5,"attempt":1,"version":1,"kind":"full","files":[{"name":"model.safetensors"},{"name":"optimizer.pt"}]}`,
		"model.safetensors", content, "optimizer.pt", "pickled")
	status, raw, _ = s.call(http.MethodPost, "weights", kind, body)
	if status != 200 || string(raw) != `{"version":1,"existing":false}`+"\n" {
		t.Fatalf("publish: %d %s", status, raw)
	}
	s.must(<-out)
	if status, text := s.post("batches/5/ack", `{"trainer":"a","attempt":1}`); status != 200 || text != `{"version":1}`+"\n" {
		t.Fatalf("ack: %d %s", status, text)
	}
	s.refuses("batches/5/nack", `{"trainer":"a","attempt":1}`, 409, "version 1")
	out = s.offer(6, 1, 1)
	s.call(http.MethodPost, "batches/lease", "application/json", strings.NewReader(`{"trainer":"a","wait_s":60}`))
	if status, text := s.post("batches/6/nack", `{"trainer":"a","attempt":1,"reason":"no"}`); status != 200 || text != "{}\n" {
		t.Fatalf("nack: %d %s", status, text)
	}
	<-out
	s.trainer.EndRun()
	if status, text := s.post("batches/lease", `{"trainer":"a"}`); status != 205 || text != "" {
		t.Fatalf("lease after the end: %d %s", status, text)
	}
	if _, text, _ := s.call(http.MethodGet, "weights/latest/files/optimizer.pt", "", nil); string(text) != "pickled" {
		t.Fatalf("optimizer.pt is %q", text)
	}
}

// Multipart bodies that are no publish, and none of them changes anything.
func TestPublishRefused(t *testing.T) {
	s := newSchool(t, api.Options{WeightsBytesMax: 8 << 10})
	s.offer(5, 0, 1)
	s.call(http.MethodPost, "batches/lease", "application/json", strings.NewReader(`{"trainer":"a","wait_s":60}`))
	head := `{"trainer":"a","lease":5,"attempt":1,"version":1,"files":[{"name":"model.safetensors"}]}`
	model := string(safetensors([]byte("abcdefgh")))
	for name, c := range map[string]struct {
		change func(kind string, body []byte) (string, []byte)
		head   string
		parts  []string
		status int
		words  string
	}{
		"no manifest":    {head: "{}", status: 400, words: "trainer"},
		"unknown field":  {head: strings.Replace(head, "lease", "leese", 1), status: 400, words: `did you mean`},
		"other file":     {head: head, parts: []string{"other.safetensors", model}, status: 400, words: "want model.safetensors"},
		"missing file":   {head: head, status: 400, words: "0 files came, want the 1"},
		"one too many":   {head: head, parts: []string{"model.safetensors", model, "more.bin", "x"}, status: 400, words: "after the 1 files"},
		"no safetensors": {head: head, parts: []string{"model.safetensors", "hello"}, status: 400, words: "model.safetensors"},
		"climbing name":  {head: strings.Replace(head, "model.safetensors", "../../x", 1), parts: []string{"../../x", model}, status: 400, words: ".."},
		"too large":      {head: head, parts: []string{"model.safetensors", string(safetensors(make([]byte, 16<<10)))}, status: 413, words: "weights_bytes_max"},
		"cut off": {head: head, parts: []string{"model.safetensors", model}, status: 400, words: "broke off",
			change: func(kind string, body []byte) (string, []byte) { return kind, body[:len(body)-100] }},
		"files first": {head: head, status: 400, words: "want manifest",
			change: func(kind string, body []byte) (string, []byte) {
				return kind, bytes.ReplaceAll(body, []byte(`name="manifest"`), []byte(`name="maanifest"`))
			}},
		"no boundary": {head: head, status: 400, words: "boundary", change: func(_ string, body []byte) (string, []byte) { return "multipart/form-data", body }},
		"empty":       {head: head, status: 400, words: "first part", change: func(kind string, _ []byte) (string, []byte) { return kind, nil }},
	} {
		kind, body := form(t, c.head, c.parts...)
		raw := body.Bytes()
		if c.change != nil {
			kind, raw = c.change(kind, raw)
		}
		status, text, _ := s.call(http.MethodPost, "weights", kind, bytes.NewReader(raw))
		if status != c.status || !strings.Contains(string(text), c.words) {
			t.Errorf("%s: %d %s, want %d with %q", name, status, text, c.status, c.words)
		}
	}
	if v := s.store.Newest(); v != 0 {
		t.Errorf("version %d is there", v)
	}
}

// The headers of files that are published count among the bodies in memory until the publish has ended.
func TestPublishedHeadersAreCounted(t *testing.T) {
	s := newSchool(t, api.Options{BodiesBytesMax: 200_000})
	head := `{"trainer":"a","version":0,"files":[{"name":"model.safetensors"}]}`
	header := `{"__metadata__":{"x":"` + strings.Repeat("y", 8000) + `"},"w":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}`
	model := string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat("z", 4_000_000)
	kind, body := form(t, head, "model.safetensors", model)
	whole := body.Bytes()
	read, write := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"weights", read)
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", kind)
		if reply, err := http.DefaultClient.Do(req); err == nil {
			_ = reply.Body.Close()
		}
	}()
	if _, err := write.Write(whole[:1<<20]); err != nil {
		t.Fatal(err)
	}
	held := func() (bytes int64) {
		_, text, _ := s.call(http.MethodGet, "status", "", nil)
		var status protocol.Status
		s.must(json.Unmarshal(text, &status))
		for _, b := range status.Bounds {
			if b.Name == "bodies_bytes" {
				bytes = b.Held
			}
		}
		return bytes
	}
	for held() < 80_000 {
		runtime.Gosched()
	}
	if status, text, _ := s.call(http.MethodPost, "weights", kind, bytes.NewReader(whole)); status != 429 || !strings.Contains(string(text), "bodies_bytes") {
		t.Errorf("a second one: %d %.300s", status, text)
	}
	s.must(write.CloseWithError(io.ErrUnexpectedEOF))
	<-ended
	for held() > 0 {
		runtime.Gosched()
	}
}

// A publish from a shared disk takes files from below the allowed directories alone.
func TestPublishDirectory(t *testing.T) {
	s := newSchool(t, api.Options{})
	out := s.offer(5, 0, 1)
	s.call(http.MethodPost, "batches/lease", "application/json", strings.NewReader(`{"trainer":"a","wait_s":60}`))
	outside, inside := t.TempDir(), filepath.Join(s.shared, "step1")
	s.must(os.Mkdir(inside, 0o755))
	for _, dir := range []string{outside, inside} {
		s.must(os.WriteFile(filepath.Join(dir, "model.safetensors"), safetensors([]byte("abcdefgh")), 0o644))
	}
	s.must(os.Symlink(outside, filepath.Join(s.shared, "link")))
	s.must(os.Mkdir(filepath.Join(s.shared, "files"), 0o755))
	s.must(os.Symlink(filepath.Join(outside, "model.safetensors"), filepath.Join(s.shared, "files", "model.safetensors")))
	publish := func(dir string) (int, string) {
		text, err := json.Marshal(dir)
		s.must(err)
		return s.post("weights", `{"trainer":"a","lease":5,"attempt":1,"version":1,"files":[{"name":"model.safetensors"}],"directory":`+string(text)+`}`)
	}
	for _, dir := range []string{outside, "/etc", s.shared + "/../" + filepath.Base(outside), filepath.Join(s.shared, "link"), filepath.Join(s.shared, "files"), "step1", filepath.Join(s.shared, "absent")} {
		if status, text := publish(dir); status != 400 || s.store.Newest() != 0 {
			t.Errorf("%s: %d %s, want it refused", dir, status, text)
		}
	}
	if status, text := publish(inside); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	s.must(<-out)
}

func TestReadWeights(t *testing.T) {
	s := newSchool(t, api.Options{})
	for v := range loop.Version(3) {
		s.must(s.store.Publish(t.Context(), port.Publication{Version: v + 1, Lease: loop.LeaseID(v + 1), Model: []port.Tensor{{Name: "w", Shape: []int{2}, Data: []float32{3, 4}}}}))
	}
	s.must(s.store.Prune(2))
	s.plane.engines = []protocol.EngineVersion{{Engine: "e0", Version: 2, Loaded: 3, State: "serving"}}
	for version, want := range map[string]string{"3": "loading", "2": "served", "1": "pruned", "latest": "loading"} {
		status, text, _ := s.call(http.MethodGet, "weights/"+version, "", nil)
		var state struct {
			Version  loop.Version
			State    string
			Manifest *weights.Manifest
			Engines  []protocol.EngineVersion
		}
		s.must(json.Unmarshal(text, &state))
		if status != 200 || state.State != want || (state.Manifest == nil) != (want == "pruned") {
			t.Errorf("version %s: %d %s, want %s", version, status, text, want)
		}
	}
	whole := safetensors(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 0x40400000), 0x40800000))
	n := len(whole)
	for spec, want := range map[string]struct {
		status      int
		first, last int
	}{
		"":                              {200, 0, n},
		"bytes=0-":                      {206, 0, n},
		"bytes=8-15":                    {206, 8, 16},
		"bytes=-4":                      {206, n - 4, n},
		"bytes=-9999":                   {206, 0, n},
		fmt.Sprintf("bytes=%d-", n-1):   {206, n - 1, n},
		fmt.Sprintf("bytes=5-%d", 10*n): {206, 5, n},
		"bytes=0-1,3-4":                 {200, 0, n},
		"bytes=9-3":                     {200, 0, n},
		"lines=1-2":                     {200, 0, n},
		"bytes=+1-2":                    {200, 0, n},
		fmt.Sprintf("bytes=%d-", n):     {416, 0, 0},
		"bytes=-0":                      {416, 0, 0},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"weights/3/files/model.safetensors", nil)
		s.must(err)
		if spec != "" {
			req.Header.Set("Range", spec)
		}
		reply, err := http.DefaultClient.Do(req)
		s.must(err)
		text, err := io.ReadAll(reply.Body)
		s.must(err)
		s.must(reply.Body.Close())
		if reply.StatusCode != want.status || !bytes.Equal(text, whole[want.first:want.last]) {
			t.Errorf("%q: %d with %d bytes, want %d with bytes %d to %d", spec, reply.StatusCode, len(text), want.status, want.first, want.last)
		}
		if got := reply.Header.Get("Content-Range"); reply.StatusCode == 206 && got != fmt.Sprintf("bytes %d-%d/%d", want.first, want.last-1, n) {
			t.Errorf("%q: Content-Range %q", spec, got)
		}
	}
	for path, status := range map[string]int{
		"weights/9": 404, "weights/-1": 400, "weights/newest": 400, "weights/007": 400,
		"weights/3/files/absent": 404, "weights/1/files/model.safetensors": 404, "weights/3/files/..%2f..%2fetc": 400, "weights/3/files/%2e%2e": 400,
		"weights/3/files/manifest.json": 404,
	} {
		if got, text, _ := s.call(http.MethodGet, path, "", nil); got != status {
			t.Errorf("%s: %d %s, want %d", path, got, text, status)
		}
	}
}
