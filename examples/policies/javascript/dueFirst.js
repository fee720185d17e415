// The request whose first token is due first joins the batch first; one that asks for no time comes after all
// that do. When blocks run out, the request gives way that loses the least: the one with the fewest tokens
// computed.

function make_batch(requests, instance) {
  return requests.map(({ nowUs, waitedUs, ttftTargetUs }) =>
    ttftTargetUs === 0 ? 1e300 : nowUs - waitedUs + ttftTargetUs,
  );
}

function select_preemption_victim(requests, instance) {
  return requests.map(({ computedTokens }) => -computedTokens);
}
