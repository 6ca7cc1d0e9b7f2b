package scenario

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"sync/atomic"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// environment is an OpenEnv server in which planes play. Its answers follow from the action and the step, but for one episode in
// nine, whose second answer is of its own: a rollout that is played in it again cannot go on.
type environment struct {
	turns    int
	episodes atomic.Uint64
}

// strange is how many episodes there are for one that answers otherwise.
const strange = 9

func (e *environment) handler() http.Handler {
	mux := http.NewServeMux()
	says := func(text string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			_, _ = rw.Write([]byte(text)) // whoever asked may be gone
		}
	}
	mux.Handle("GET /health", says(`{"status": "healthy"}`))
	mux.Handle("GET /schema", says(`{"action": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}}`))
	mux.HandleFunc("/ws", func(rw http.ResponseWriter, r *http.Request) {
		if conn, err := websocket.Accept(rw, r, nil); err == nil {
			_ = e.play(r, conn) // it ends with the connection
			_ = conn.CloseNow()
		}
	})
	return mux
}

// play answers on a connection, which is an episode.
func (e *environment) play(r *http.Request, conn *websocket.Conn) error {
	number, step := e.episodes.Add(1), 0
	for {
		var asked struct {
			Type string
			Data struct{ Message string }
		}
		if err := wsjson.Read(r.Context(), conn, &asked); err != nil || asked.Type == "close" {
			return err
		}
		text, done := "", false
		if asked.Type == "step" {
			step++
			done = step >= e.turns
			text = answerOf(asked.Data.Message, step)
			if step == 2 && number%strange == 0 {
				text = answerOf(fmt.Sprint(number), step)
			}
		}
		data := map[string]any{"observation": map[string]string{"text": text}, "done": done}
		if err := wsjson.Write(r.Context(), conn, map[string]any{"type": "observation", "data": data}); err != nil {
			return err
		}
	}
}

// answerOf is what the environment says to an action.
func answerOf(action string, step int) string {
	hash := fnv.New64a()
	fmt.Fprint(hash, action, step)
	n := hash.Sum64()
	return Policy.Spell(int32(8+n%16), int32(8+n/16%16))
}
