package transfer_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/transfer"
)

// slowRoad brings a version in an hour, and in the middle of a word.
type slowRoad struct{ transfer.Delivery }

func (slowRoad) Fetch(context.Context, transfer.Load) (transfer.Phases, error) {
	time.Sleep(time.Hour + 9*time.Second)
	return transfer.Phases{}, nil
}

func (slowRoad) Clean() error { return nil }

// control is a control plane that has one version loaded, and loses every word in between.
type control struct {
	t       *testing.T
	hanging bool // a word is on its way
	end     func()
}

func (c *control) RoundTrip(r *http.Request) (*http.Response, error) {
	var report protocol.ReceiverRequest
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		c.t.Error(err)
	}
	reply := protocol.ReceiverReply{Version: loop.NoVersion}
	switch {
	case report.Done == 1 || report.Leaving:
		if c.hanging {
			c.t.Errorf("a word is still on its way at %+v", report)
		}
		c.end()
	case report.WaitS > 0:
		reply = protocol.ReceiverReply{Seq: 1, Kind: protocol.ReceiveLoad, Version: 7}
	default:
		c.hanging = true
		defer func() { c.hanging = false }()
		select {
		case <-time.After(7 * time.Second):
			return nil, errors.New("it was lost")
		case <-r.Context().Done():
			time.Sleep(time.Second)
			return nil, r.Context().Err()
		}
	}
	text, err := json.Marshal(reply)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(text)))}, err
}

// A receiver that is busy says so, and stops saying so before it reports. It logs one line at a time.
func TestWordsWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		lines := 0
		agent := &transfer.Agent{Control: "http://control", Name: "a", Engine: "e", Delivery: slowRoad{}, Client: &http.Client{Transport: &control{t: t, end: cancel}},
			Logf: func(string, ...any) { lines++ }}
		if err := agent.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if want := 300 + 1; lines != want { // an hour of words, each 5 s after the last, and lost in 7 s; then the load
			t.Errorf("%d lines, want %d", lines, want)
		}
	})
}

// taken is a control plane at which another process is the receiver, from one moment to another.
type taken struct {
	began       time.Time
	from, until time.Duration
	end         func()
}

func (p *taken) RoundTrip(r *http.Request) (*http.Response, error) {
	at := time.Since(p.began)
	if at >= p.from && at < p.until {
		text := `{"error":{"code":"conflict","message":"another process is receiver a at this moment"}}`
		return &http.Response{StatusCode: http.StatusConflict, Body: io.NopCloser(strings.NewReader(text))}, nil
	}
	if at >= p.until {
		p.end()
	}
	time.Sleep(time.Second)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"version":-1}`))}, nil
}

// A receiver that comes waits for as long as the request of one whose node is gone may be open. Later it gives its place up.
func TestAnotherHasThePlace(t *testing.T) {
	for name, test := range map[string]struct {
		from, until, ends time.Duration
		refused           bool
	}{
		"until its request ends": {0, 16 * time.Second, 0, false},
		"for good":               {0, time.Hour, time.Minute, true},
		"another has come":       {10 * time.Second, time.Hour, 11 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				place := &taken{began: time.Now(), from: test.from, until: test.until, end: cancel}
				agent := &transfer.Agent{Control: "http://control", Name: "a", Engine: "e", Delivery: slowRoad{}, Client: &http.Client{Transport: place}}
				err := agent.Run(ctx)
				if refused := err != nil && strings.Contains(err.Error(), "another process is receiver a"); refused != test.refused {
					t.Errorf("it ends with %v", err)
				}
				if test.refused && time.Since(place.began) > test.ends {
					t.Errorf("it ends after %v", time.Since(place.began))
				}
			})
		})
	}
}
