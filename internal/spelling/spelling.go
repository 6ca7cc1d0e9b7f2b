// Package spelling finds what somebody who mistyped a name probably meant.
package spelling

import "strings"

// LengthMax is the longest word, in bytes, that is compared: a longer one is no name.
const LengthMax = 100

// Nearest returns the candidate closest to a word by edit distance, regardless of case. Where none is
// near enough to be a likely typo, it returns the only one that begins with the word; "" for none.
func Nearest(word string, candidates []string) string {
	if len(word) > LengthMax {
		return ""
	}
	word = strings.ToLower(word)
	best, bestDistance := "", max(2, len(word)/3)+1
	for _, candidate := range candidates {
		if distance := Distance(word, strings.ToLower(candidate)); distance < bestDistance {
			best, bestDistance = candidate, distance
		}
	}
	if best != "" && bestDistance < len(word) { // else nothing of the word would be left
		return best
	}
	return beginning(word, candidates)
}

// beginning returns the only candidate that begins with a word of more than two
// letters, "" if there is none or more than one.
func beginning(word string, candidates []string) (only string) {
	for _, candidate := range candidates {
		if len(word) < 3 || !strings.HasPrefix(strings.ToLower(candidate), word) {
			continue
		}
		if only != "" {
			return ""
		}
		only = candidate
	}
	return only
}

// Distance counts the insertions, deletions, substitutions and swaps of neighbours that
// turn one word into another, byte by byte.
func Distance(a, b string) int {
	before := make([]int, len(b)+1)   // row i-2
	previous := make([]int, len(b)+1) // row i-1
	current := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
