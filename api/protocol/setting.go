package protocol

// SettingRequest asks for the value of one of a run's settings, in the setting's own unit.
type SettingRequest struct {
	// Value is needed: one that is left out is not 0.
	Value *float64 `json:"value"`
}
