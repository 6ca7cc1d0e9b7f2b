package upstream

import (
	"encoding/json"
	"strconv"
)

// AppendTokens adds token ids to a request as a list of JSON.
func AppendTokens(b []byte, tokens []int32) []byte {
	b = append(b, '[')
	for i, t := range tokens {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(t), 10)
	}
	return append(b, ']')
}

// AppendString adds a text as JSON.
func AppendString(b []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // a string cannot fail
	return append(b, quoted...)
}

// AppendNumber adds a finite number, which every setting is after its check.
func AppendNumber(b []byte, x float64) []byte { return strconv.AppendFloat(b, x, 'g', -1, 64) }
