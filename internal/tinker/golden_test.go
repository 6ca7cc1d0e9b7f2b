package tinker

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
)

// golden are messages that Tinker's own client has written, and what it reads in them: testdata/golden.py.
type golden struct {
	Requests []struct {
		Model, Loss string
		Seq         int
		Config      map[string]float64
		Data        []Datum
		ForwardOnly bool `json:"forward_only"`
		Bytes       string
	}
	Outputs []struct {
		Bytes    string
		Metrics  map[string]float64
		Logprobs [][]float32
	}
	Samples []struct {
		Bytes     string
		Sequences []Sequence
	}
}

func readGolden(t testing.TB) (g golden) {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Requests) < 3 || len(g.Outputs) < 3 || len(g.Samples) < 2 {
		t.Fatalf("golden.json has %d requests, %d outputs and %d samples", len(g.Requests), len(g.Outputs), len(g.Samples))
	}
	return g
}

func decoded(t testing.TB, text string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWritesTheBytesOfTheOfficialClient(t *testing.T) {
	for i, r := range readGolden(t).Requests {
		p := pass{model: r.Model, seq: r.Seq, data: r.Data, loss: Loss{r.Loss, r.Config}, forwardOnly: r.ForwardOnly}
		if got, want := p.protobuf(), decoded(t, r.Bytes); !bytes.Equal(got, want) {
			t.Errorf("request %d is %x, want %x", i, got, want)
		}
	}
}

func TestReadsWhatTheOfficialClientReads(t *testing.T) {
	g := readGolden(t)
	for i, o := range g.Outputs {
		got, err := outputFrom(answer{contentType: protobufType, body: decoded(t, o.Bytes)})
		if err != nil || !slices.EqualFunc(got.Logprobs, o.Logprobs, slices.Equal) || !maps.Equal(got.Metrics, o.Metrics) {
			t.Errorf("output %d is read as %+v, %v, want %+v", i, got, err, o)
		}
	}
	for i, s := range g.Samples {
		got, err := sequencesFrom(answer{contentType: protobufType, body: decoded(t, s.Bytes)})
		same := func(a, b Sequence) bool {
			return slices.Equal(a.Tokens, b.Tokens) && slices.Equal(a.Logprobs, b.Logprobs) && a.Stopped == b.Stopped
		}
		if err != nil || !slices.EqualFunc(got, s.Sequences, same) {
			t.Errorf("sample %d is read as %+v, %v, want %+v", i, got, err, s.Sequences)
		}
	}
}

// FuzzResults: bytes that a service might send are read or refused, and what is read fits together.
func FuzzResults(f *testing.F) {
	g := readGolden(f)
	for _, o := range g.Outputs {
		f.Add(decoded(f, o.Bytes), true)
	}
	for _, s := range g.Samples {
		f.Add(decoded(f, s.Bytes), true)
	}
	f.Add([]byte(`{"loss_fn_outputs":[{"logprobs":{"data":[-1.5,null]}}],"metrics":{"loss:sum":1}}`), false)
	f.Add([]byte(`{"sequences":[{"tokens":[1,2],"logprobs":[-1,-2],"stop_reason":"length"}]}`), false)
	f.Fuzz(func(t *testing.T, body []byte, binary bool) {
		a := answer{contentType: jsonType, body: body}
		if binary {
			a.contentType = protobufType
		}
		o, err := outputFrom(a)
		floats := 0
		for _, logprobs := range o.Logprobs {
			floats += len(logprobs)
		}
		if err == nil && floats > len(body) {
			t.Errorf("%d log-probs in %d bytes", floats, len(body))
		}
		if s, err := firstSequence(a, 8); err == nil && (len(s.Tokens) > 8 || len(s.Tokens) != len(s.Logprobs)) {
			t.Errorf("read %+v", s)
		}
	})
}
