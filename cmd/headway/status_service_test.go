package main

import (
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/plane"
	"strings"
	"testing"
)

// A status of such a run says where its weights are, and nothing of a cache that there is none of.
func TestStatusOfAService(t *testing.T) {
	var page strings.Builder
	status := busyStatus()
	status.Trainer = protocol.Trainer{State: plane.TrainerService}
	status.Engines = []protocol.Engine{{Name: "cloud", Kind: "tinker", Version: 3, State: "serving", Slots: 8,
		Server: &protocol.Server{URL: "http://a", Software: "Tinker's API, base", State: "serving", Versions: "reported", Weights: "service"}}}
	(&statusView{width: 200}).page(&page, status)
	for _, want := range []string{"at http://a · Tinker's API, base · weights by service · versions reported\n", "weights at the service", "trainer    service · idle"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("lacks %q:\n%s", want, page.String())
		}
	}
}
