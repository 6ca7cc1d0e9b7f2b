package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// TestAgentHeaders: the headers name who speaks and whether it is trained, and what cannot be meant is refused.
func TestAgentHeaders(t *testing.T) {
	h := newHouse(t, func(int, protocol.TurnRequest) response { return says("yes") })
	for _, call := range []struct {
		agent, train string
		status       int
		wants        *bool
		began        string
	}{
		{"solver", "", http.StatusOK, nil, `"began":"first"`},
		{"referee", "false", http.StatusOK, new(false), `"began":"agent"`},
		{"referee", "false", http.StatusOK, new(false), `"began":"repeated"`},
		{"solver", "TRUE", http.StatusOK, new(true), `"began":"repeated"`},
		{"solver", "perhaps", http.StatusBadRequest, nil, "want true or false"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"a"}]}`))
		r.Header.Set(protocol.RolloutHeader, "g1-s0-a0")
		r.Header.Set("X-Headway-Agent", call.agent)
		if call.train != "" {
			r.Header.Set("X-Headway-Train", call.train)
		}
		h.gateway.ServeHTTP(&wavering{ResponseRecorder: w}, r)
		if w.Code != call.status || !strings.Contains(w.Body.String(), call.began) {
			t.Errorf("%+v: %d: %s", call, w.Code, w.Body)
		}
		if call.status != http.StatusOK {
			continue
		}
		seen := h.port.seen()
		req := seen[len(seen)-1].req
		if req.Agent != call.agent || (req.Train == nil) != (call.wants == nil) || req.Train != nil && *req.Train != *call.wants {
			t.Errorf("%+v: the turn is asked for as %+v", call, req)
		}
	}
}
