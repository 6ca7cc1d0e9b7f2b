package report

import (
	"strconv"
	"strings"
)

// TrimLines removes the blanks that an empty last column leaves.
func TrimLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// Short prints a number with at most four digits and no exponent where it can.
func Short(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

// Decimals is a printer of numbers with so many decimals, as Figure has them.
func Decimals(n int) func(float64) string {
	return func(v float64) string { return Figure(v, n) }
}

// Signed prints a difference with its sign.
func Signed(v float64, print func(float64) string) string {
	if v > 0 {
		return "+" + print(v)
	}
	return print(v)
}
