package enginetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Tokens of the chat template of a PolicyServer: a message is its role's token, its text and the policy's EOS.
const (
	tokenUser      = 1
	tokenAssistant = 2
	// tokenText is the first of the tokens that stand for a character; one of the policy's is spelled by its number.
	tokenText = 16
)

// Spell is the text of tokens: "<7>" for 7, and nothing for the EOS, which is a special one.
func (p Policy) Spell(tokens ...int32) string {
	var text strings.Builder
	for _, token := range tokens {
		if token != p.EOS {
			fmt.Fprintf(&text, "<%d>", token)
		}
	}
	return text.String()
}

// read is the inverse of Spell. Any other character is a token as well.
func (p Policy) read(text string) []int32 {
	var tokens []int32
	for text != "" {
		if word, rest, ok := strings.Cut(text, ">"); ok && word[0] == '<' {
			if id, err := strconv.ParseUint(word[1:], 10, 31); err == nil && int(id) < p.Vocabulary {
				tokens, text = append(tokens, int32(id)), rest
				continue
			}
		}
		tokens, text = append(tokens, tokenText+int32(text[0])%int32(p.Vocabulary-tokenText)), text[1:]
	}
	return tokens
}

// tokenize renders a chat, or reads a text.
func (s *PolicyServer) tokenize(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Prompt   string `json:"prompt"`
		Messages []struct{ Role, Content string }
		Next     bool `json:"add_generation_prompt"`
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		refuse(w, http.StatusBadRequest, "the request is not understood: %v", err)
		return
	}
	p := s.opt.Policy
	tokens := p.read(call.Prompt)
	for _, m := range call.Messages {
		role := int32(tokenUser)
		if m.Role == "assistant" {
			role = tokenAssistant
		}
		tokens = append(append(append(tokens, role), p.read(m.Content)...), p.EOS)
	}
	if call.Next {
		tokens = append(tokens, tokenAssistant)
	}
	answerJSON(w, http.StatusOK, object{"tokens": tokens, "count": len(tokens), "max_model_len": s.opt.Context})
}

// derender spells the tokens of responses.
func (s *PolicyServer) derender(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Responses []struct {
			Choices []struct {
				Tokens []int32 `json:"token_ids"`
			} `json:"choices"`
		} `json:"generate_responses"`
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		refuse(w, http.StatusBadRequest, "the request is not understood: %v", err)
		return
	}
	choices := []any{}
	for _, response := range call.Responses {
		for _, c := range response.Choices {
			choices = append(choices, object{"index": len(choices), "text": s.opt.Policy.Spell(c.Tokens...)})
		}
	}
	answerJSON(w, http.StatusOK, object{"choices": choices})
}
