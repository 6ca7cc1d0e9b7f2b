package enginetest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// StrictTemplate answers /tokenize as vLLM does with a template that knows two roles and wants the
// user's word last: a token a letter.
func StrictTemplate(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Prompt   string
		Messages []struct{ Role, Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text, refused := body.Prompt, strings.Contains(body.Prompt, "refuse")
	for i, m := range body.Messages {
		refused = refused || m.Role != "user" && m.Role != "assistant" || m.Role == "assistant" && i == len(body.Messages)-1
		text += m.Role[:1] + m.Content
	}
	switch {
	case strings.Contains(text, "break"):
		http.Error(w, `{"error":{"message":"out of memory","type":"InternalServerError","code":500}}`, http.StatusInternalServerError)
		return
	case refused:
		http.Error(w, `{"error":{"message":"roles must alternate","type":"BadRequestError","code":400}}`, http.StatusBadRequest)
		return
	}
	var tokens []int32
	for _, letter := range []byte(text) {
		tokens = append(tokens, int32(letter)%64)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"tokens": tokens, "count": len(tokens), "max_model_len": 256})
}
