package api

import (
	"net/http"

	"github.com/headway-rl/headway/api/protocol"
)

// requestSetting asks for a setting's value.
func (s *Server) requestSetting(w http.ResponseWriter, r *http.Request) error {
	port := s.ports().Settings
	if port == nil {
		return s.absent("settings are moved", "a control or fleet section")
	}
	var req protocol.SettingRequest
	if err := readJSON(r, &req); err != nil {
		return err
	}
	if req.Value == nil {
		return protocol.Refuse(protocol.CodeInvalid, "the body has no value: want {\"value\": NUMBER}")
	}
	if err := port.RequestSetting(r.PathValue("name"), *req.Value); err != nil {
		return err
	}
	return writeJSON(w, req)
}
