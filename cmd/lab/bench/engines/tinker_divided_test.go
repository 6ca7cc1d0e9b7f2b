package main

import (
	"encoding/json"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/internal/tinker"
)

const (
	// dividedData is how many data a step has, dividedMost how many of them a request takes.
	dividedData, dividedMost = 16, 5
	// dividedNumerics is how far two orders of summation may lie apart, relatively.
	dividedNumerics = 1e-4
)

// divided makes one step of the same data on adapters with the same weights, the data in one request and in several: the
// step is the same. One with half of the data is not, or nothing would be compared.
func (s *tinkerSuite) divided(t *testing.T) {
	recorder := enginetest.NewRecorder(s.url, nil)
	t.Cleanup(recorder.Close)
	data := trainingData(dividedData)
	whole, wholeText, requests := s.step(t, recorder, recorder.URL(), data)
	if len(requests) != 1 {
		t.Fatalf("%d data were sent in %d requests, want 1", dividedData, len(requests))
	}
	parts, partsText, requests := s.step(t, recorder, limited(t, recorder.URL()), data)
	if want := (dividedData + dividedMost - 1) / dividedMost; len(requests) != want || !slices.IsSorted(requests) || len(slices.Compact(requests)) != want {
		t.Errorf("requests numbered %v, want %d in order", requests, want)
	}
	half, halfText, _ := s.step(t, recorder, recorder.URL(), data[:dividedData/2])
	if math.Abs(parts-whole) > dividedNumerics*whole || distance(partsText, wholeText) > dividedNumerics {
		t.Errorf("the gradient's norm is %v of one request and %v of several, the log-probs of a text afterwards %.2g nats apart", whole, parts, distance(partsText, wholeText))
	}
	if math.Abs(half-whole) < 10*dividedNumerics*whole || distance(halfText, wholeText) < 10*dividedNumerics {
		t.Errorf("half of the data give the same step (norms %v and %v): nothing is compared here", half, whole)
	}
	s.add("requests that one divided gradient took, the step the same as of one request", len(requests))
}

// step makes a fresh adapter and one step of it. It returns the gradient's norm, the log-probs of a text afterwards, and the
// numbers of the requests that brought the data.
func (s *tinkerSuite) step(t *testing.T, recorder *enginetest.Recorder, url string, data []tinker.Datum) (norm float64, text []float32, numbers []int) {
	t.Helper()
	before := len(recorder.Settle())
	session := openTinker(t, url)
	defer session.Close()
	model := s.newModel(t, session)
	norm = s.train(t, model, data)
	for _, e := range recorder.Settle()[before:] {
		if e.Status != http.StatusOK || !strings.HasSuffix(e.Path, "/forward_backward") {
			continue // refused is the first of all, in the encoding that such a service does not read
		}
		var q struct {
			Number int `json:"seq_id"`
		}
		if err := json.Unmarshal(e.Body, &q); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, q.Number)
	}
	probe := trainingData(1)[0]
	probe.Logprobs, probe.Advantages, probe.Weights = nil, nil, ones(len(probe.Targets))
	out, err := model.Forward(t.Context(), []tinker.Datum{probe}, tinker.Loss{Name: "cross_entropy"})
	if err != nil {
		t.Fatal(err)
	}
	return norm, out.Logprobs[0], numbers
}

// limited is a service in front of another that takes few data a request, and says so.
func limited(t *testing.T, to string) string {
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // the client leaves long polls when it closes its session
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/client/config") {
			proxy.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]int{"fwdbwd_max_chunk_len": dividedMost})
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// distance is the mean difference of log-probs.
func distance(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += math.Abs(float64(a[i]) - float64(b[i]))
	}
	return sum / float64(len(a))
}
