package api

// trainerRoutes has the paths of this file.
func (s *Server) trainerRoutes() {}
