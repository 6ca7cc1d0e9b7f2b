package metrics

// VerlByName are a summary's figures under verl's names.
func VerlByName(s Summary) map[string]float64 {
	named := map[string]float64{}
	for _, m := range VerlMetrics(s) {
		named[m.Name] = m.Value
	}
	return named
}
