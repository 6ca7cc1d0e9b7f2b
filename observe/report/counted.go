package report

// Counted prints a number of things, which are called by the noun of one.
func Counted[N int | int32 | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Count(int64(n)) + " " + thing + "s"
}
