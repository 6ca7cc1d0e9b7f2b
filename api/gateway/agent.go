package gateway

import (
	"net/http"
	"strconv"

	"github.com/headway-rl/headway/api/protocol"
)

// Headers by which a client says which agent of the rollout speaks, and whether it is trained.
const (
	agentHeader = "X-Headway-Agent"
	trainHeader = "X-Headway-Train"
)

// agent is who speaks; train is nil where the client does not say whether it is trained.
type agent struct {
	name  string
	train *bool
}

// agentOf reads the headers of a request.
func agentOf(r *http.Request) (agent, error) {
	a := agent{name: r.Header.Get(agentHeader)}
	text := r.Header.Get(trainHeader)
	if text == "" {
		return a, nil
	}
	train, err := strconv.ParseBool(text)
	if err != nil {
		return a, protocol.Refuse(protocol.CodeInvalid, "the header %s is %.20q: want true or false", trainHeader, text)
	}
	a.train = &train
	return a, nil
}
