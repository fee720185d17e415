/** Sixty requests that share a prefix and come in bursts: policies differ on them within a second. */
export const smallWorkload = `version: "1"
seed: 1
aggregate_rate: 80.0
num_requests: 60
clients:
  - id: hot
    tenant_id: shop
    slo_class: standard
    rate_fraction: 1.0
    arrival: { process: gamma, cv: 4.0 }
    input_distribution: { type: gaussian, params: { mean: 220, std_dev: 90, min: 30, max: 600 } }
    output_distribution: { type: gaussian, params: { mean: 40, std_dev: 20, min: 5, max: 90 } }
    prefix_group: hot
    prefix_length: 2048
`;
