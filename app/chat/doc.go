// Package chat makes what agents and players speak to: the gateway of a document, whose chats are rendered by the engines' servers.
package chat
