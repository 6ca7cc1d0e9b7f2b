package api

import "net/http"

// endpoint is a path of the API and who may ask for it.
type endpoint struct {
	// pattern is as http.ServeMux reads it: a method, where it is for one alone, and a path.
	pattern string
	// roles may ask for it; 0 is everybody, without a token.
	roles Role
	flags flag
}

// handle adds a path. Every path of the server is added here, so that a table can say who may call what.
func (s *Server) handle(pattern string, roles Role, flags flag, h http.HandlerFunc) {
	s.endpoints = append(s.endpoints, endpoint{pattern, roles, flags})
	s.mux.HandleFunc(pattern, h)
}
