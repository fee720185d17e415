/** Settings: the cases of one workload and one model of time, which differ by their seeds only. */

/** `shared-prefixes/roofline/7` without its seed. */
export function settingOf(caseId: string): string {
  return caseId.split('/').slice(0, -1).join('/');
}

/** Mean score in each setting, in the order in which settings first come. */
export function meansBySetting(
  cases: readonly { readonly id: string; readonly score: number }[],
): Readonly<Record<string, number>> {
  const sums = new Map<string, { sum: number; count: number }>();
  for (const { id, score } of cases) {
    const entry = sums.get(settingOf(id)) ?? { sum: 0, count: 0 };
    sums.set(settingOf(id), { sum: entry.sum + score, count: entry.count + 1 });
  }
  return Object.fromEntries([...sums].map(([setting, { sum, count }]) => [setting, sum / count]));
}
