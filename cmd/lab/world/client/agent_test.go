package client

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// chatting is what a gateway has been asked by an agent.
type chatting struct {
	Messages []Message `json:"messages"`
	N        int       `json:"n"`
	Stream   bool      `json:"stream"`
	Most     int       `json:"max_tokens"`
}

// events are a stream of two choices, each of a token, and whether it comes to its end.
func events(token int, whole bool) string {
	text := ""
	for i := range 2 {
		text += fmt.Sprintf("data: {\"choices\":[{\"index\":%d,\"delta\":{\"content\":\"<%d>\"},\"token_ids\":[%d]}]}\n\n", i, token, token)
		if i == 0 || whole {
			text += fmt.Sprintf("data: {\"choices\":[{\"index\":%d,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", i)
		}
	}
	if whole {
		return text + "data: [DONE]\n\n"
	}
	return text
}

// An agent goes on from what it was told, asks again where that may help, and reads answers of both forms.
func TestAgent(t *testing.T) {
	whole := `{"choices":[{"index":0,"token_ids":[9],"finish_reason":"stop","message":{"content":"<9>"}},{"index":1,"token_ids":[9],"finish_reason":"stop","message":{"content":"<9>"}}]}`
	conflict := `{"error":{"code":"conflict","message":"1 of the 2 choices are recorded"}}`
	for name, c := range map[string]struct {
		agent   Agent
		answers []string
		want    string // how it ends
		asked   []int  // the number of messages of each request
	}{
		"two turns":          {Agent{Turns: 2, Choices: 2, Tokens: 8}, []string{whole, whole}, "", []int{1, 3}},
		"streams":            {Agent{Turns: 2, Choices: 2, Tokens: 8, Stream: true}, []string{events(9, true), events(9, true)}, "", []int{1, 3}},
		"a stream breaks":    {Agent{Turns: 1, Choices: 2, Tokens: 8, Stream: true}, []string{events(8, false), events(9, true)}, "", []int{1, 1}},
		"an error in one":    {Agent{Turns: 1, Choices: 2, Tokens: 8, Stream: true}, []string{"data: " + conflict + "\n\n", events(9, true)}, "", []int{1, 1}},
		"a conflict":         {Agent{Turns: 1, Choices: 2, Tokens: 8}, []string{"409" + conflict, whole}, "", []int{1, 1}},
		"one choice of two":  {Agent{Turns: 1, Choices: 2, Tokens: 8}, []string{strings.Replace(whole, `,{"index":1`, `],"x":[{"index":1`, 1)}, "1 choices where 2", []int{1}},
		"no hope":            {Agent{Turns: 1, Choices: 2, Tokens: 8}, []string{`410{"error":{"code":"expired","message":"over"}}`}, "over", []int{1}},
		"conflicts for ever": {Agent{Turns: 1, Choices: 2, Tokens: 8}, []string{"409" + conflict, "409" + conflict, "409" + conflict, "409" + conflict}, "recorded", []int{1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []chatting
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body chatting
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Authorization") != "Bearer the-key" {
					t.Errorf("asked with %v, under %q", err, r.Header.Get("Authorization"))
				}
				asked = append(asked, body)
				answer := c.answers[min(len(asked), len(c.answers))-1]
				if answer[0] == '4' {
					w.WriteHeader(map[string]int{"409": 409, "410": 410}[answer[:3]])
					answer = answer[3:]
				}
				_, _ = w.Write([]byte(answer))
			}))
			defer front.Close()
			task := agentTask(t, front.URL)
			_, err := c.agent.Play(func(*Task) Question {
				return Question{Text: "<5>", Verify: func(text string, tokens []int32) (Result, error) {
					if text != "<9>" || fmt.Sprint(tokens) != "[9]" {
						t.Errorf("judged %q, %v", text, tokens)
					}
					return Result{Reward: 1}, nil
				}}
			})(t.Context(), task)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("ended with %v, want %q", err, c.want)
			}
			var sizes []int
			for _, a := range asked {
				sizes = append(sizes, len(a.Messages))
				if a.N != 2 || a.Most != 8 || a.Stream != c.agent.Stream || len(a.Messages) == 3 && a.Messages[1] != (Message{"assistant", "<9>"}) {
					t.Errorf("asked %+v", a)
				}
			}
			if fmt.Sprint(sizes) != fmt.Sprint(c.asked) {
				t.Errorf("asked %v messages, want %v", sizes, c.asked)
			}
		})
	}
}

// An agent in a hurry leaves, and asks again.
func TestAgentLeaves(t *testing.T) {
	left, asked := make(chan struct{}), 0
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not look for the end of the connection
		if asked++; asked == 1 {
			<-r.Context().Done()
			close(left)
			return
		}
		_, _ = w.Write([]byte(`{"choices":[{"index":0,"token_ids":[9],"finish_reason":"stop","message":{"content":"<9>"}}]}`))
	}))
	defer front.Close()
	task := agentTask(t, front.URL)
	task.worker.transport.rand = rand.New(rand.NewPCG(10, 0)) // the first draw puts it in a hurry
	said, err := Agent{Turns: 1, Choices: 1, Tokens: 8, Leave: 300 * time.Millisecond}.turn(t.Context(), task, []Message{{"user", "<5>"}})
	<-left
	if err != nil || said.text != "<9>" {
		t.Errorf("%+v, %v after %d requests", said, err, asked)
	}
}

// agentTask is a claimed rollout of a worker that knows one address.
func agentTask(t *testing.T, url string) *Task {
	t.Helper()
	w, err := NewWorker(WorkerOptions{Options: Options{URLs: []string{url}, Patience: -1}, Name: "w", Environments: map[string]Play{"chats": nil}})
	if err != nil {
		t.Fatal(err)
	}
	return &Task{ID: "g1-s0-a1", worker: w, transport: w.transport, key: "the-key", unwanted: newEvent()}
}
