package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
)

// settings notes what is asked for.
type settings map[string]float64

func (s settings) RequestSetting(name string, value float64) error {
	if name != "engines" {
		return protocol.Refuse(protocol.CodeNotFound, "there is no setting %q", name)
	}
	s[name] = value
	return nil
}

// A setting is asked for by its name, by who runs the run.
func TestSettings(t *testing.T) {
	asked := settings{}
	for _, c := range []struct {
		port       api.Settings
		name, body string
		status     int
	}{
		{asked, "engines", `{"value":3}`, http.StatusOK},
		{asked, "moods", `{"value":3}`, http.StatusNotFound},
		{asked, "engines", `{"value":"many"}`, http.StatusBadRequest},
		{asked, "engines", `{}`, http.StatusBadRequest},
		{asked, "engines", `{"value":null}`, http.StatusBadRequest},
		{nil, "engines", `{"value":3}`, http.StatusNotFound},
	} {
		s, err := api.New(api.Options{}, api.Ports{Plane: readyPlane{}, Settings: c.port})
		if err != nil {
			t.Fatal(err)
		}
		listener := httptest.NewServer(s.Handler())
		reply, err := http.Post(listener.URL+"/api/v1/settings/"+c.name, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		listener.Close()
		if reply.StatusCode != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.name, c.body, reply.StatusCode, text, c.status)
		}
	}
	if asked["engines"] != 3 || len(asked) != 1 {
		t.Errorf("asked for %v", asked)
	}
}
