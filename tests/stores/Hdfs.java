import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** One name node and one data node; prints the port of the name node, and runs until its input ends. */
public class Hdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
        settings.set("dfs.namenode.fs-limits.min-block-size", "0");
        MiniDFSCluster cluster =
            new MiniDFSCluster.Builder(settings).numDataNodes(1).build();
        cluster.waitClusterUp();
        System.out.println("port " + cluster.getNameNodePort());
        System.out.flush();
        while (System.in.read() >= 0) {}
        cluster.shutdown();
        System.exit(0);
    }
}
