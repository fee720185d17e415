"""What a policy sees of a request in vLLM 0.33.0, written from its description."""


class ReqContext:
    def __init__(self, req_id, kv_transfer_params=None, kv_hints=None):
        self.req_id = req_id
        self.kv_transfer_params = kv_transfer_params
        self.kv_hints = kv_hints
        self._state = {}
        self._offload_key_positions = {}

    def set_state(self, value):
        self._state[type(value)] = value

    def get_state(self, cls):
        return self._state.get(cls)

    def set_offload_key_position(self, key, end_token):
        self._offload_key_positions[key] = end_token

    def get_offload_key_position(self, key):
        return self._offload_key_positions.get(key)


def make_offload_key(block_hash, group_idx):
    return block_hash + group_idx.to_bytes(4, "big")
