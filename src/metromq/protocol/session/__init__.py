"""The state of clients: sessions, connections and the hub that joins them."""
