package enginetest

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// What was recorded is answered again, byte for byte, by a server that only has the file.
func TestRecordAndReplay(t *testing.T) {
	proxy := NewFaultProxy(stream(t), Script(Fault{}, Fault{Kind: Truncate, After: 1}, Fault{Kind: Busy}, Fault{Kind: Mute}))
	var seen []Exchange
	ended := make(chan struct{}, 8)
	recorder := NewRecorder(proxy.URL(), func(e Exchange) { seen = append(seen, e); ended <- struct{}{} })
	var direct []string
	for range 3 {
		direct = append(direct, answer(t, recorder.URL()))
		<-ended
	}
	proxy.SetDown(true)
	direct = append(direct, answer(t, recorder.URL()))
	<-ended
	conversation := recorder.Transcript("a note", "another")
	recorder.Close()
	proxy.Close()
	if len(seen) != 4 || seen[0].End != EndRegular || seen[1].End != EndCut || seen[3].Status != 0 || len(seen[0].Events()) != 3 {
		t.Fatalf("recorded %+v", seen)
	}

	path := filepath.Join(t.TempDir(), "deep", "conversation.txt")
	if err := conversation.Save(path); err != nil {
		t.Fatal(err)
	}
	read, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(read.Exchanges) != 4 || !reflect.DeepEqual(read.Notes, conversation.Notes) {
		t.Fatalf("read %+v", read)
	}
	replay := NewReplay(read)
	defer replay.Close()
	for i, want := range direct {
		if got := answer(t, replay.URL()); got != want {
			t.Errorf("answer %d is\n%s\nrecorded was\n%s", i, got, want)
		}
	}
	if len(replay.Missed())+len(replay.Unasked()) != 0 {
		t.Errorf("missed %q, not asked %q", replay.Missed(), replay.Unasked())
	}
}

// answer is everything that a client sees of an answer.
func answer(t *testing.T, url string) string {
	t.Helper()
	res, err := ask(t, url)
	if err != nil {
		return "no answer"
	}
	body, err := io.ReadAll(res.Body)
	outcome := "whole"
	if err != nil {
		outcome = "cut"
	}
	return strings.Join([]string{res.Status, res.Header.Get("Content-Type"), string(body), outcome}, "\n")
}

// Names are the caller's own, in what is matched and in what is answered; anything else must be as recorded.
func TestReplayNames(t *testing.T) {
	replay := NewReplay(&Transcript{Exchanges: []Exchange{
		{Method: "POST", Path: "/generate", Body: []byte(`{"rid":"first-1","a":1}`), Status: 200, End: EndRegular,
			Header: http.Header{"Content-Type": {"application/json"}}, Pieces: []Piece{{Data: []byte(`{"id":"x-first-1"}`)}}},
	}})
	defer replay.Close()
	for body, want := range map[string]string{
		`{"a": 1, "rid":"other-2"}`: `{"id":"x-other-2"}`,
		`{"a": 2, "rid":"other-2"}`: "not recorded",
	} {
		res, err := http.Post(replay.URL()+"/generate", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is answered %s, want %s", body, text, want)
		}
	}
	if len(replay.Missed()) != 1 {
		t.Errorf("missed %q", replay.Missed())
	}
}

func TestTranscriptText(t *testing.T) {
	odd := &Transcript{Notes: []string{"n"}, Exchanges: []Exchange{{
		Method: "POST", Path: "/v1/completions?x=1", Body: []byte("two\nlines"), Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Pieces: []Piece{{Data: []byte(": ping\r\n\r\n")}, {Data: []byte("data: a\ndata: b\n\n")}, {Data: []byte("data: {\"created\": 12}\n\n")}, {Data: []byte("data: cut of")}},
		End:    EndCut,
	}}}
	var text bytes.Buffer
	if err := odd.Write(&text); err != nil {
		t.Fatal(err)
	}
	read, err := ReadTranscript(bytes.NewReader(text.Bytes()))
	if err != nil || !reflect.DeepEqual(read, odd) {
		t.Errorf("%v: read %+v of\n%s", err, read, text.String())
	}
	for _, bad := range []string{"", "something else", transcriptHead + "\n< 200", transcriptHead + "\n> GET", transcriptHead + "\n> GET /\n< 200",
		transcriptHead + "\n> GET /\n< gone", transcriptHead + "\n> GET /\n? x", transcriptHead + "\n> GET /\n<+x a"} {
		if _, err := ReadTranscript(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read as a conversation", bad)
		}
	}
	odd.Scrub(map[string]string{"two": "three"})
	if string(odd.Exchanges[0].Body) != "three\nlines" || string(odd.Exchanges[0].Pieces[2].Data) != "data: {\"created\":0}\n\n" {
		t.Errorf("scrubbed %+v", odd.Exchanges[0])
	}
}
