// The evolved rule: 1:1, but prefix affinity lets go of the instance with the best prefix the more requests
// it has in flight above the least busy one; full caches cost, and idle instances gain a little.

function score(request, cluster, instances) {
  let best = -1;
  let busy = 0;
  let least = Infinity;
  for (const { prefixAffinity, inFlight } of instances) {
    if (prefixAffinity > best) {
      best = prefixAffinity;
      busy = inFlight;
    }
    least = Math.min(least, inFlight);
  }
  let weight = 0.5;
  if (best > 0.1 && busy > least) weight = 0.5 * (1 / (1 + 0.6 * (busy - least)));
  return instances.map(({ prefixAffinity, load, kvUtilization, inFlight }) => {
    let sum = prefixAffinity * weight + (1 / (1 + load)) * (1 - weight);
    if (kvUtilization > 0.9) sum -= (0.5 * (kvUtilization - 0.9)) / 0.1;
    return sum + 0.01 / (1 + inFlight);
  });
}
